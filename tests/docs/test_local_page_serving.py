"""docs/local.md on how it runs and is controlled is what the code says, and the other way round."""

import json
import re
from dataclasses import MISSING, fields, replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import local.__main__ as serving
import local.functions_host.__main__ as host_alone
from local import config, control
from local.cloud import Cloud, CloudOptions
from local.cosmos import config as cosmos_config
from local.cosmos.server import Cosmos
from local.counters import Counters, OperationTally
from local.durable import backend as durable_service
from local.faults import LINK_ACTIONS, Action, Fault, Faults
from local.hosts import Hosts
from local.servicebus import config as entities
from local.servicebus.broker import ON_DELIVERY, UNDER_LOCK
from local.servicebus.message import MessageState
from tests.docs.local_page import (
    ROOT,
    cells,
    coded,
    names,
    options,
    paragraph,
    quoted,
)


def test_the_options_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serving.parse_arguments(["serve", "--help"])

    documented = {name.split()[0] for name in names("Run it", "option")}
    assert documented == options(capsys.readouterr().out)


def test_the_options_of_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serving.parse_arguments(["settings", "--help"])

    words = coded(paragraph("Run it", "`python -m local settings REGION`"))
    documented = {word for word in words if word.startswith("--")}
    assert documented == options(capsys.readouterr().out)


def test_the_options_of_a_host_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        host_alone.parse_arguments(["--help"])

    words = coded(paragraph("Functions host", "Runs the app"))
    documented = {word.split()[0] for word in words if word.startswith("--")}
    assert documented == options(capsys.readouterr().out)


def test_the_line_and_the_exit_status(tmp_path: Path) -> None:
    sample = config.load_config(ROOT / "local.config.json")
    values = {"LOCAL_DURABLE_ADDRESS": "{durable}"}
    hosts = config.HostsConfig(("east",), values)
    with Cloud(replace(sample, hosts=hosts), CloudOptions(tmp_path)) as cloud:
        line = cloud.describe()

    words = coded(paragraph("Run it", "When all is ready"))
    statuses = {"0", str(serving.HOST_ERROR), str(serving.USAGE_ERROR)}
    assert set(words) - {"--data"} == set(line) | statuses


def test_the_config() -> None:
    sections = cells("Run it", "key")

    assert set(sections) == set(config.SECTIONS)
    assert set(coded(sections["Cosmos"])) == quoted(r"known\(\s*\w+, (\{.*?\})", cosmos_config)
    assert set(coded(sections["Hosts"])) == quoted(r"key not in (\(.*\))", config.parse_hosts)


def test_every_control_route() -> None:
    documented = names("Control endpoint", "route")
    lines = re.findall(r"^    ([A-Z]+) +(/.*?)  ", control.__doc__ or "", re.MULTILINE)
    assert documented == {f"{verb} {path}" for verb, paths in lines for path in paths.split(", ")}

    with Cosmos(cosmos_config.CosmosConfig("lockstep", ())) as cosmos:
        endpoint = control.Control(
            port=0,
            faults=Faults(),
            counters=Counters(),
            hosts=Hosts(()),
            cosmos=cosmos,
            depths=dict,
            contents=lambda _namespace, _queue: [],
            targets=list,
        )
        endpoint.start()
        try:
            answered = {route: answer_to(endpoint.url, *route.split()) for route in documented}
        finally:
            endpoint.stop()
    assert [route for route, text in answered.items() if "is not offered" in text] == []


def test_what_counters_and_depths_are_called() -> None:
    called = {field.name for field in fields(OperationTally)} | {
        state.value for state in MessageState
    }

    documented = coded(cells("Control endpoint", "route")["GET /counters"])
    path = entities.subscription_path("<topic>", "<name>")
    assert set(documented) == called | {"queues", "dead_lettered", path}


def answer_to(url: str, verb: str, path: str) -> str:
    """The body of an answer, whatever its status; a number stands for what the path leaves open."""
    body = b"{}" if verb == "POST" else None
    request = Request(url + re.sub(r"\{\w+\}", "1", path), data=body, method=verb)
    try:
        with urlopen(request, timeout=5) as answer:
            return str(answer.read())
    except HTTPError as error:
        with error:
            return str(error.read())


def test_every_field_and_action_of_a_fault() -> None:
    fields_of_a_fault = {
        field.name: "required" if field.default is MISSING else f"`{json.dumps(field.default)}`"
        for field in fields(Fault)
    }

    assert cells("Control endpoint", "field") == fields_of_a_fault


def test_every_action_and_who_carries_it_out() -> None:
    everywhere = {action.value for action in Action}
    bus, durable = (
        {name for name, cell in cells("Control endpoint", "action", at).items() if "never" in cell}
        for at in (1, 3)
    )

    assert names("Control endpoint", "action") == everywhere
    assert bus == everywhere - UNDER_LOCK - ON_DELIVERY - LINK_ACTIONS
    assert durable == everywhere - durable_service.HONOURED

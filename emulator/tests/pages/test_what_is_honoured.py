"""The pages name what is honoured: all of it, and nothing else."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from durabletask.internal import orchestrator_service_pb2

import local.__main__ as serving
import local.functions_host.__main__ as host_alone
import local.functions_host.triggers.cosmos as cosmos_trigger
import local.functions_host.triggers.http as http_trigger
import local.functions_host.triggers.service_bus as service_bus_trigger
import local.functions_host.triggers.timer as timer_trigger
from local import config, control
from local.cloud import Cloud, CloudOptions
from local.cosmos import config as cosmos_config
from local.cosmos.http import account, requests
from local.cosmos.http.batches import BATCH_ACTIONS
from local.cosmos.http.documents import RANGE_GONE
from local.cosmos.items import patch
from local.cosmos.items.containers import KNOWN_PROPERTIES
from local.cosmos.items.indexing import KNOWN_KEYS
from local.cosmos.query.merging import NOT_SERVABLE
from local.cosmos.responses import RequestRefused
from local.cosmos.server import Cosmos
from local.cosmos.sql.functions import AGGREGATES, FUNCTIONS
from local.cosmos.sql.parser import load_grammar, parse_query
from local.counters import Counters, OperationTally
from local.durable import backend as durable
from local.faults import LINK_ACTIONS, Action, Fault, Faults
from local.functions_host.admin import Admin
from local.functions_host.config import host_json, keys
from local.functions_host.config.functions import BESIDE_A_TRIGGER, RETRIED
from local.functions_host.config.settings import (
    DISABLED,
    EMULATOR_ADDRESSES,
    INVOCATION_COST,
    TARGET_GROUP,
)
from local.functions_host.durable import extension, management
from local.functions_host.host import LISTENERS, NAME_KEYS, DurableListener
from local.functions_host.web import Route, WebHandler, WebServer
from local.functions_host.worker.process import WorkerProcess
from local.hosts import Hosts
from local.servicebus import config as entities
from local.servicebus.amqp.errors import (
    CONDITION_OF_STATUS,
    STATUS_BAD_REQUEST,
    STATUS_OF_CONDITION,
    ErrorCondition,
    error_for_status,
)
from local.servicebus.broker import ON_DELIVERY, OPERATIONS, UNDER_LOCK
from local.servicebus.message import MessageState, Settlement
from local.servicebus.nodes.management import ManagementNode
from pages.pages import ROOT, coded, page
from pages.sources import first_texts, numbers_given_as, texts_given_to, texts_of

RUN, CONTROL = page("docs/running.md"), page("docs/control.md")
BUS, COSMOS = page("docs/service-bus.md"), page("docs/cosmos-db.md")
HOST, DURABLE = page("docs/functions-host.md"), page("docs/durable.md")
QUERY_TESTS = [ROOT / f"tests/wire/test_cosmos_{name}.py" for name in ("query", "functions")]
OPERATORS = ("COMPARISON", "ADDITIVE", "MULTIPLICATIVE")
ITEMS, ITEM = "/dbs/d/colls/c/docs", "/dbs/d/colls/c/docs/i"


@pytest.fixture
def options(capsys: pytest.CaptureFixture[str]) -> Callable[..., set[str]]:
    """The options that the help of a command line shows, but for --help."""

    def ask(parse: Callable[[Sequence[str]], argparse.Namespace], *command: str) -> set[str]:
        with pytest.raises(SystemExit):
            parse([*command, "--help"])
        return set(re.findall(r"^  (--[\w-]+)", capsys.readouterr().out, re.MULTILINE))

    return ask


def test_the_options_of_every_command(options: Callable[..., set[str]]) -> None:
    documented = RUN.table("option").column()

    for command in ("serve", "settings"):
        of = {name.split()[0] for name, of in documented.items() if command in coded(of)}
        assert of == options(serving.parse_arguments, command)
    alone = {name.split()[0] for name in HOST.table("option of a host").names()}
    assert alone == options(host_alone.parse_arguments)


def test_the_line_and_the_exit_statuses(tmp_path: Path) -> None:
    sample = config.load_config(ROOT / "local.config.json")
    hosts = config.HostsConfig(("east",), {"LOCAL_DURABLE_ADDRESS": "{durable}"})
    with Cloud(replace(sample, hosts=hosts), CloudOptions(tmp_path)) as cloud:
        line = cloud.describe()

    assert RUN.table("key of the line").names() == set(line)
    statuses = {"0", str(serving.HOST_ERROR), str(serving.USAGE_ERROR)}
    assert RUN.table("exit status").names() == statuses


def test_the_config() -> None:
    sections = RUN.table("key").column()

    assert set(sections) == set(config.SECTIONS)
    known = texts_given_to("refuse_unknown", cosmos_config) - {"Cosmos"}
    assert set(coded(sections["Cosmos"])) == known
    in_hosts = {field.name.title() for field in fields(config.HostsConfig)}
    assert set(coded(sections["Hosts"])) == in_hosts


def test_every_control_route() -> None:
    documented = CONTROL.table("route").names()
    words = [line.split() for line in (control.__doc__ or "").splitlines()]
    routes = [(verb, path.strip(",")) for verb, *rest in filter(None, words) for path in rest]
    assert documented == {f"{v} {p}" for v, p in routes if v.isupper() and p.startswith("/")}

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


def test_what_counters_and_depths_are_called() -> None:
    tallies = {field.name for field in fields(OperationTally)}
    path = entities.subscription_path("<topic>", "<name>")

    documented = coded(CONTROL.table("route").column()["GET /counters"])
    assert set(documented) == tallies | set(MessageState) | {"queues", "dead_lettered", path}


def test_every_field_of_a_fault_with_its_default() -> None:
    assert CONTROL.table("field").column() == {
        field.name: "required" if field.default is MISSING else f"`{json.dumps(field.default)}`"
        for field in fields(Fault)
    }


def test_every_action_and_who_carries_it_out() -> None:
    actions = CONTROL.table("action")
    bus, hub = (
        {name for name, cell in actions.column(at).items() if "never" in cell} for at in (1, 3)
    )

    assert actions.names() == set(Action)
    assert bus == set(Action) - UNDER_LOCK - ON_DELIVERY - LINK_ACTIONS
    assert hub == set(Action) - durable.HONOURED


def test_every_property_of_an_entity_with_its_default() -> None:
    defaults = {
        "queue": entities.QUEUE_DEFAULTS,
        "topic": entities.TOPIC_DEFAULTS,
        "subscription": entities.SUBSCRIPTION_DEFAULTS,
    }
    table = BUS.table("property")

    assert {
        (name, kind, table.column(2)[name])
        for name, of in table.column().items()
        for kind in of.split(", ")
    } == {
        (name, kind, f"`{json.dumps(default)}`")
        for kind, known in defaults.items()
        for name, default in known.items()
    }


def test_every_filter() -> None:
    filters = BUS.table("filter").column()

    with pytest.raises(entities.InvalidConfig) as refused:
        entities.parse_filter({"FilterType": "of mine"}, "a rule")
    assert set(re.findall(r"\b[A-Z]\w+", str(refused.value))) - {"FilterType"} == set(filters)
    assert set(coded(filters["Correlation"])) == entities.CORRELATION_PROPERTIES


def test_every_operation_and_management_request() -> None:
    table = BUS.table("operation")
    requested = {
        request: operation
        for operations, of_management in table.rows
        for request, operation in zip(coded(of_management), coded(operations), strict=False)
    }

    assert table.names() == set(OPERATIONS)
    assert requested.pop("update-disposition") in set(Settlement)
    assert requested == first_texts("ManagementOperation", ManagementNode)


def test_every_error_and_what_arms_it() -> None:
    rows = BUS.table("in `$management`").rows
    documented = {name: int(code) for code, conditions, _ in rows for name in coded(conditions)}
    armed = {
        int(status): coded(conditions)
        for _, conditions, statuses in rows
        for status in re.findall(r"\d+", statuses)
        if "any other" not in statuses
    }

    assert documented == {
        one.value: STATUS_OF_CONDITION.get(one, STATUS_BAD_REQUEST) for one in ErrorCondition
    }
    assert set(armed) == set(CONDITION_OF_STATUS)
    for status, conditions in armed.items():
        assert error_for_status(status).condition in conditions


def test_every_resource_and_property_of_a_container() -> None:
    properties = COSMOS.table("property of a container").column()

    assert COSMOS.table("resource").names() == set(requests.KINDS)
    assert set(properties) == KNOWN_PROPERTIES
    assert KNOWN_KEYS <= set(coded(properties["indexingPolicy"])) <= KNOWN_KEYS | {"_etag"}


def test_every_operation_on_items() -> None:
    examples: dict[str, tuple[str, str, dict[str, str]]] = {
        "create": ("POST", ITEMS, {}),
        "upsert": ("POST", ITEMS, {"x-ms-documentdb-is-upsert": "true"}),
        "read": ("GET", ITEM, {}),
        "replace": ("PUT", ITEM, {}),
        "patch": ("PATCH", ITEM, {}),
        "delete": ("DELETE", ITEM, {}),
        "batch": ("POST", ITEMS, {"x-ms-cosmos-is-batch-request": "true"}),
        "query": ("POST", ITEMS, {"x-ms-documentdb-isquery": "true"}),
        "query-plan": ("POST", ITEMS, {"x-ms-cosmos-is-query-plan-request": "True"}),
        "feed": ("GET", ITEMS, {"A-IM": "Incremental Feed"}),
        "account": ("GET", "/", {}),
    }
    documented = COSMOS.table("operation").column()

    called = {
        requests.CosmosRequest(method, requests.parse_address(path), headers, b"", "").operation
        for method, path, headers in examples.values()
    }
    assert called == set(examples) == set(documented)
    assert called == requests.ITEM_OPERATIONS | {requests.ACCOUNT_OPERATION}
    assert set(coded(documented["batch"])) == set(BATCH_ACTIONS)
    assert set(coded(documented["patch"])) == patch.APPLY.keys() | {"condition"}


def test_every_header_and_substatus() -> None:
    of_http = r"x-ms-[\w-]+|If-[\w-]+|A-IM|Prefer"
    headers = {text for text in texts_of("local/cosmos") if re.fullmatch(of_http, text)}
    named = {account.WRITE_FORBIDDEN, account.RID_MISMATCH, account.SESSION_NOT_AVAILABLE}
    substatuses = numbers_given_as("substatus", "local/cosmos") | named | {RANGE_GONE, NOT_SERVABLE}

    # The last row is about all others.
    assert {name for name in COSMOS.table("header").names() if " " not in name} == headers
    assert {int(number) for number in COSMOS.table("substatus").names()} == substatuses


def test_every_query_that_is_honoured_can_be_parsed_and_shows_every_word() -> None:
    examples = COSMOS.table("query").names(1)
    for example in examples:
        parse_query(example, {"@p": 1})

    text = " ".join(examples)
    patterns = {one.name: one.pattern.value for one in load_grammar().terminals}
    # What is recognised to be refused by its name is no word of a query that is honoured.
    words = {
        word
        for name, pattern in patterns.items()
        if pattern.endswith(r"\b") and name != "OTHER_CLAUSE"
        for word in re.findall("[A-Z]+", pattern)
    }
    marks = {mark for name in OPERATORS for mark in re.findall(r"[^?:()|\\]+", patterns[name])}
    assert {"SELECT", "DESC", "NULL"} < words
    assert set(re.findall(r"\b[A-Z_]{2,}\b", text)) == {*words, *FUNCTIONS, *AGGREGATES}
    assert marks >= {"!=", "+", "%"}
    assert [mark for mark in marks if f" {mark} " not in text] == []


def test_every_query_that_is_refused_is_refused() -> None:
    for example in COSMOS.table("query refused").names(1):
        with pytest.raises(RequestRefused):
            parse_query(example, {})


def test_every_trigger_and_its_properties() -> None:
    of_durable = texts_given_to("only", DurableListener) | {name for _, name in NAME_KEYS.values()}
    of_http = texts_given_to("only", http_trigger) | set(http_trigger.CONSTRAINTS)
    beside = HOST.table("beside a trigger").column()

    documented = HOST.table("trigger").column()
    assert {name: set(coded(cell)) for name, cell in documented.items()} == {
        "serviceBusTrigger": set(service_bus_trigger.HONOURED),
        "cosmosDBTrigger": set(cosmos_trigger.HONOURED),
        "httpTrigger": of_http,
        "timerTrigger": texts_given_to("only", timer_trigger),
        "manualTrigger": set(),
        **dict.fromkeys(NAME_KEYS, of_durable),
    }
    assert set(documented) == set(LISTENERS)
    assert set(coded(beside["binding"])) == {kind for kind, _ in BESIDE_A_TRIGGER}
    assert set(coded(beside["retry policy"])) == RETRIED


def test_every_key_of_host_json_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    without = host_json.parse({})
    documented: set[str] = set()
    for where, words in HOST.table("host.json").rows:
        path = where.strip("`").split(".") if where else []
        documented |= {*path, *coded(re.sub(r" = `[^`]+`", "", words))}
        for key, default in re.findall(r"`(\w+)` = `([^`]+)`", words):
            document: Any = {key: json.loads(default)}
            for outer in reversed(path):
                document = {outer: document}
            assert host_json.parse(document) == without, document

    asked: set[str] = set()

    def note(method: Callable[..., Any]) -> Callable[..., Any]:
        def noting(section: object, key: str, *rest: Any) -> Any:
            asked.add(key)
            return method(section, key, *rest)

        return noting

    for name in ("take", "section"):
        method = getattr(host_json.HostJsonSection, name)
        monkeypatch.setattr(host_json.HostJsonSection, name, note(method))
    host_json.parse({})
    assert documented == asked


class Recorder(WebServer):
    """Notes routes instead of serving them."""

    def __init__(self) -> None:
        super().__init__(0)
        self.routes: set[str] = set()

    def add(self, route: Route, handler: WebHandler) -> None:
        """Note one."""
        self.routes |= {f"{method} {route.path}" for method in route.methods}


def test_every_admin_route_and_setting() -> None:
    server = Recorder()
    worker = WorkerProcess(Path(), "east", 1.0, 0.0)
    Admin("east", {}, keys.Keys.read({}), worker, 1.0).add_routes(server)
    settings = {
        *(timer_trigger.DATA_SETTING, extension.ADDRESS_SETTING, keys.MASTER, INVOCATION_COST),
        TARGET_GROUP,
        *(f"{keys.HOST_PREFIX}KEY", f"{keys.FUNCTION_PREFIX}FUNCTION.KEY"),
        *(f"{keys.SYSTEM_PREFIX}{management.EXTENSION}", f"{host_json.PREFIX}PATH__KEY"),
        *(name.replace("{function}", "FUNCTION") for name in DISABLED),
        *(f"NAME{end}" for end in EMULATOR_ADDRESSES),
    }

    assert HOST.table("route").names() == server.routes
    assert HOST.table("setting").names() == settings
    assert keys.DEVELOPMENT_KEY in HOST.words


def test_every_request_about_durable_instances() -> None:
    server = Recorder()
    management.InstanceManagement("127.0.0.1:1", keys.Keys.read({})).add_routes(server)
    requests_shown = DURABLE.table("request").names()

    assert {one.replace(f" {management.INSTANCE}", " ").strip() for one in server.routes} == (
        requests_shown
    )
    assert management.INSTANCE in DURABLE.words
    assert DURABLE.table("query parameter").names() == management.HONOURED


def test_every_operation_of_a_hub_that_is_named_is_one() -> None:
    methods = orchestrator_service_pb2.DESCRIPTOR.services_by_name["TaskHubSidecarService"].methods
    known = {durable.operation_of(method.name) for method in methods} | {durable.HAND_OUT}

    assert DURABLE.table("operation of a hub").names() <= known
    assert f"{durable.COMPONENT}.REGION" in DURABLE.words


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_query_function_is_called_through_the_sdk(name: str) -> None:
    assert any(f"{name}(" in path.read_text() for path in QUERY_TESTS)

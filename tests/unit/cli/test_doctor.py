"""`doctor` names what was planted, and the next step; and of a sound app it says nothing."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.doctor import ADVICE, check_host, check_settings
from cli.folders import ROOT
from shared.domain.failures import FAILURE_RULES, FailureClass
from tests.unit.cli.fake_app import Asked, running_app

type Values = dict[str, str]
type Change = Callable[[Values, dict[str, Any]], None]


def sound_values() -> Values:
    """The settings of a region, as the local configuration has them."""
    values: Values = json.loads((ROOT / "local.config.json").read_text())["Hosts"]["Values"]
    return values | {"LOCKSTEP_REGION": "east", "LOCKSTEP_COSMOS_LOCATIONS": ""}


def sound_host() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "host.json").read_text())
    return document


def set_value(name: str, value: str) -> Change:
    return lambda values, _: values.update({name: value})


def remove_value(name: str) -> Change:
    def change(values: Values, _: dict[str, Any]) -> None:
        del values[name]

    return change


def set_host(value: Any, *path: str) -> Change:
    def change(_: Values, host: dict[str, Any]) -> None:
        for name in path[:-1]:
            host = host[name]
        host[path[-1]] = value

    return change


PLANTED: dict[str, tuple[Change, str, str]] = {
    "a region that is none of the list": (
        set_value("LOCKSTEP_REGION", "north"),
        "LOCKSTEP_REGION 'north' is not among east, west",
        "correct LOCKSTEP_REGION",
    ),
    "a namespace without a connection": (
        remove_value("ServiceBus_west"),
        "neither ServiceBus_west nor ServiceBus_west__fullyQualifiedNamespace is set",
        "correct ServiceBus_west",
    ),
    "an account without a connection": (
        remove_value("Cosmos"),
        "neither Cosmos nor Cosmos__accountEndpoint is set",
        "correct Cosmos",
    ),
    "entries that go before their messages are forgotten": (
        set_value("LOCKSTEP_RETENTION_DAYS", "1"),
        "LOCKSTEP_RETENTION_DAYS 1 must not be less than LOCKSTEP_WINDOW_DAYS 7",
        "correct LOCKSTEP_RETENTION_DAYS",
    ),
    "an acknowledgement that waits longer than the rescue": (
        set_value("LOCKSTEP_ACKNOWLEDGE_SECONDS", "9"),
        "LOCKSTEP_ACKNOWLEDGE_SECONDS 9 must be less than LOCKSTEP_RESCUE_LAG_SECONDS 5",
        "correct LOCKSTEP_ACKNOWLEDGE_SECONDS",
    ),
    "a number that is none": (
        set_value("LOCKSTEP_GAP_WAIT_SECONDS", "5s"),
        "LOCKSTEP_GAP_WAIT_SECONDS is not a number: '5s'",
        "correct LOCKSTEP_GAP_WAIT_SECONDS",
    ),
    "a misspelt setting": (
        set_value("LOCKSTEP_RETENTON_DAYS", "9"),
        "LOCKSTEP_RETENTON_DAYS is no setting",
        "did you mean LOCKSTEP_RETENTION_DAYS?",
    ),
    "a setting that the bindings would miss": (
        remove_value("LOCKSTEP_LEASES"),
        "LOCKSTEP_LEASES: not set",
        "set every LOCKSTEP_ name",
    ),
    "messages that are fetched early": (
        set_host(100, "extensions", "serviceBus", "prefetchCount"),
        "prefetchCount is not 0",
        "set extensions.serviceBus.prefetchCount to 0",
    ),
    "messages that are not settled": (
        set_host(False, "extensions", "serviceBus", "autoCompleteMessages"),
        "autoCompleteMessages is off",
        "set extensions.serviceBus.autoCompleteMessages to true",
    ),
    "sessions that are held": (
        set_host("00:01:00", "extensions", "serviceBus", "sessionIdleTimeout"),
        "sessionIdleTimeout is over 5 s",
        'set extensions.serviceBus.sessionIdleTimeout to "00:00:01"',
    ),
    "a function that may run for too short a time": (
        set_host("00:02:00", "functionTimeout"),
        "functionTimeout 00:02:00 is too short for LOCKSTEP_HANDLER_SECONDS 60",
        "raise functionTimeout to 270 s",
    ),
    "routes below another prefix": (
        set_host("lockstep", "extensions", "http", "routePrefix"),
        "routePrefix is 'lockstep'",
        'set extensions.http.routePrefix to "api"',
    ),
    "an app setting that overrules host.json": (
        set_value("AzureFunctionsJobHost__extensions__serviceBus__prefetchCount", "10"),
        "prefetchCount is not 0",
        "set extensions.serviceBus.prefetchCount to 0",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_in_the_settings_is_named_with_the_next_step(
    planted: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)
    change, wrong, step = PLANTED[planted]
    values, host = sound_values(), sound_host()
    change(values, host)
    (tmp_path / "host.json").write_text(json.dumps(host))
    (tmp_path / "settings").write_text(json.dumps({"Values": values}))
    words = ("doctor", "--settings", str(tmp_path / "settings"), "--app", str(tmp_path))

    assert main([*words, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert main(words) == 1
    shown = capsys.readouterr().out

    assert (wrong in found["wrong"], step in found["next"]) == (True, True), found
    assert (found["wrong"] in shown, found["next"] in shown) == (True, True), shown


def test_nothing_is_said_of_sound_settings() -> None:
    assert [*check_settings(sound_values()), *check_host(sound_host(), sound_values())] == []


def test_a_producers_environment_needs_no_setting_of_an_app(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)
    needed = ("LOCKSTEP_REGION", "LOCKSTEP_QUEUE", "Cosmos", "ServiceBus_")
    for name, value in sound_values().items():
        if name.startswith(needed):
            monkeypatch.setenv(name, value)

    assert find(capsys) == []


def healthy(region: str, **missing: str) -> Callable[[Asked], tuple[int, Any]]:
    def respond(asked: Asked) -> tuple[int, Any]:
        if asked.path == "/api/health":
            return 200, {"region": region, "journal": "readable", "missing": missing}
        return (200, {"standstills": [], "after": None}) if asked.key == "k" else (401, "")

    return respond


def find(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    """What doctor finds, with the exit status that goes with it."""
    status = main(["--timeout", "0.5", *words, "doctor", "--json"])
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["findings"]
    assert status == (1 if found else 0)
    return found


def test_nothing_is_said_of_two_sound_apps(capsys: pytest.CaptureFixture[str]) -> None:
    with running_app(healthy("east")) as east, running_app(healthy("west")) as west:
        assert find(capsys, "--url", f"{east.url},{west.url}", "--key", "k") == []


def test_a_wrong_key_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with running_app(healthy("east")) as app:
        (found,) = find(capsys, "--url", app.url, "--key", "other")

    assert (found["check"], "does not take the key" in found["wrong"]) == ("key", True)
    assert "az functionapp keys list" in found["next"]


def test_an_app_that_is_not_there_and_one_that_is_silent_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_app(lambda _: (200, None)) as silent:
        gone, mute = find(capsys, "--url", f"http://127.0.0.1:1,{silent.url}")

    assert "http://127.0.0.1:1 cannot be reached" in gone["wrong"]
    assert "correct LOCKSTEP_URL" in gone["next"]
    assert "gave no answer" in mute["wrong"]
    assert "log" in mute["next"]


def test_something_else_than_an_app_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with running_app(lambda _: (200, {"hello": "world"})) as other:
        (found,) = find(capsys, "--url", other.url)

    assert "is no Lockstep app" in found["wrong"]


def test_two_apps_that_say_that_they_are_one_region_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_app(healthy("east")) as one, running_app(healthy("east")) as two:
        (found,) = find(capsys, "--url", f"{one.url},{two.url}", "--key", "k")

    assert "both say that they are region east" in found["wrong"]
    assert "LOCKSTEP_REGION" in found["next"]


NO_ACCESS = "The key, the role or the connection string is wrong, or there is no such queue."


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("Service Bus: The queue is missing, or it is disabled. (queue)", "create the queue"),
        (f"Service Bus: {NO_ACCESS}", "infra/access.bicep"),
        ("Service Bus: The queue is of another kind than the app needs.", "with sessions"),
        ("Cosmos DB: The container or the database is missing.", "infra/journal.bicep"),
    ],
)
def test_a_queue_a_role_and_a_container_that_are_missing_are_named(
    reason: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_app(healthy("east", **{"queue 'x' of west": reason})) as app:
        (found,) = find(capsys, "--url", app.url, "--key", "k")

    assert found["check"] == "queues and roles"
    assert f"cannot use queue 'x' of west: {reason}" in found["wrong"]
    assert step in found["next"]


def test_there_is_advice_for_every_failure_that_needs_a_person_but_a_full_queue() -> None:
    needing = {r.why for r in FAILURE_RULES if r.failure_class is FailureClass.DESTINATION}

    assert needing - set(ADVICE) == {"The queue is full."}
    assert set(ADVICE) <= needing


@pytest.mark.parametrize(
    "text",
    ["{", "3", '{"Values": {"a": 1}}', '[{"name": "a"}]'],
)
def test_a_file_without_settings_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings").write_text(text)

    assert main(["doctor", "--settings", str(tmp_path / "settings")]) == 2

    assert "holds no settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    "form",
    [
        lambda values: {"IsEncrypted": False, "Values": values},
        lambda values: [{"name": name, "value": value} for name, value in values.items()],
    ],
)
def test_settings_are_read_as_tools_write_them(
    form: Callable[[Values], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings"
    path.write_text(json.dumps(form(sound_values() | {"LOCKSTEP_REGION": "north"})))

    assert main(["doctor", "--settings", str(path), "--json"]) == 1

    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert "'north' is not among" in found["wrong"]


def test_nothing_is_said_of_the_sample_of_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)
    sample = str(ROOT / "docs/local.settings.sample.json")

    assert main(["doctor", "--settings", sample, "--json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert (printed["findings"], printed["checked"][:2]) == ([], ["versions", "settings"])


def test_a_version_that_was_not_tested_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cli.doctor.version", lambda name: "0.1" if name == "pydantic" else version(name)
    )
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)

    (found,) = find(capsys)

    assert found["wrong"].startswith("pydantic is 0.1, and ")
    assert "pip install -r" in found["next"]

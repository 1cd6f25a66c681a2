"""`doctor` names what was planted, and the next step; and of a sound app it says nothing."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from cli.doctor import ADVICE, HOST_SETTING, check_host, check_settings
from cli.folders import ROOT
from cli.regions import CONFIG
from shared.domain.failures import FAILURE_RULES, FailureClass
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import Asked, running_app

type Values = dict[str, str]


def sound_values() -> Values:
    """The settings of a region, as the local configuration has them."""
    values: Values = json.loads(CONFIG.read_text())["Hosts"]["Values"]
    return values | {"LOCKSTEP_REGION": "east", "LOCKSTEP_COSMOS_LOCATIONS": ""}


def sound_host() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((ROOT / "host.json").read_text())
    return document


def find(run: Run, *words: str) -> list[dict[str, str]]:
    """What doctor finds, with the exit status that goes with it."""
    status, out, _ = run(*words, "--json")
    found: list[dict[str, str]] = json.loads(out)["findings"]
    assert status == (1 if found else 0)
    return found


BUS = "extensions.serviceBus"
# A setting, its value or None where it is left out, what is found, and the next step.
SETTINGS: list[tuple[str, str | None, str, str]] = [
    ("LOCKSTEP_REGION", "north", "'north' is not among east, west", "correct LOCKSTEP_REGION"),
    ("ServiceBus_west", None, "neither ServiceBus_west nor ServiceBus_w", "correct ServiceBus_w"),
    ("Cosmos", None, "neither Cosmos nor Cosmos__accountEndpoint is set", "correct Cosmos"),
    ("LOCKSTEP_RETENTON_DAYS", "9", "is no setting", "did you mean LOCKSTEP_RETENTION_DAYS?"),
    ("LOCKSTEP_LEASES", None, "LOCKSTEP_LEASES: not set", "set every LOCKSTEP_ name"),
    # It overrules host.json.
    (f"{HOST_SETTING}extensions__serviceBus__prefetchCount", "10", "is not 0", "Count to 0"),
]
# The same of a place of host.json.
HOST: list[tuple[str, Any, str, str]] = [
    (f"{BUS}.prefetchCount", 100, "prefetchCount is not 0", f"set {BUS}.prefetchCount to 0"),
    (f"{BUS}.autoCompleteMessages", False, "autoCompleteMessages is off", "Messages to true"),
    (f"{BUS}.sessionIdleTimeout", "00:01:00", "is over 5 s", 'Timeout to "00:00:01"'),
    (f"{BUS}.maxConcurrentSessions", 150, "150 sessions with 8 calls each", "docs/limits.md"),
    ("functionTimeout", "00:02:00", "short for LOCKSTEP_HANDLER_SECONDS 60", "to 270 s"),
    ("extensions.http.routePrefix", "lockstep", "is 'lockstep'", 'routePrefix to "api"'),
]


@pytest.mark.parametrize(("name", "value", "wrong", "step"), [*SETTINGS, *HOST])
def test_what_is_planted_in_the_settings_is_named_with_the_next_step(
    name: str, value: Any, wrong: str, step: str, tmp_path: Path, run: Run
) -> None:
    values, host = sound_values(), sound_host()
    if (name, value, wrong, step) in SETTINGS:
        given = values | {name: value}
        values = {name: text for name, text in given.items() if text is not None}
    else:
        *path, last = name.split(".")
        place = host
        for part in path:
            place = place[part]
        place[last] = value
    (tmp_path / "host.json").write_text(json.dumps(host))
    (tmp_path / "settings").write_text(json.dumps({"Values": values}))
    words = ("doctor", "--settings", str(tmp_path / "settings"), "--app", str(tmp_path))

    (found,) = find(run, *words)
    shown = run(*words)[1]

    assert (wrong in found["wrong"], step in found["next"]) == (True, True), found
    said = " ".join(shown.split())
    assert (found["wrong"] in said, found["next"] in said) == (True, True), shown
    assert [one for one in shown.splitlines() if len(one) > 80 and len(one.split()) > 1] == []


def test_nothing_is_said_of_sound_settings() -> None:
    assert [*check_settings(sound_values()), *check_host(sound_host(), sound_values())] == []


def test_nothing_is_said_of_the_sample_of_settings(run: Run) -> None:
    sample = str(ROOT / "docs/local.settings.sample.json")

    status, out, _ = run("doctor", "--settings", sample, "--json")

    said = json.loads(out)
    assert (status, said["findings"], said["checked"][:2]) == (0, [], ["versions", "settings"])


def test_a_producers_environment_needs_no_setting_of_an_app(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = ("LOCKSTEP_REGION", "LOCKSTEP_QUEUE", "Cosmos", "ServiceBus_")
    for name, value in sound_values().items():
        if name.startswith(needed):
            monkeypatch.setenv(name, value)

    assert find(run, "doctor") == []


@pytest.mark.parametrize("text", ["{", "3", '{"Values": {"a": 1}}', '[{"name": "a"}]'])
def test_a_file_without_settings_is_refused(text: str, tmp_path: Path, run: Run) -> None:
    (tmp_path / "settings").write_text(text)

    status, _, error = run("doctor", "--settings", str(tmp_path / "settings"))

    assert (status, "holds no settings" in error) == (2, True)


def test_settings_are_read_as_azure_lists_them(tmp_path: Path, run: Run) -> None:
    values = sound_values() | {"LOCKSTEP_REGION": "north"}
    listed = [{"name": name, "value": value} for name, value in values.items()]
    (tmp_path / "settings").write_text(json.dumps(listed))

    (found,) = find(run, "doctor", "--settings", str(tmp_path / "settings"))

    assert "'north' is not among" in found["wrong"]


def healthy(region: str, **missing: str) -> Callable[[Asked], tuple[int, Any]]:
    def respond(asked: Asked) -> tuple[int, Any]:
        if (asked.path, asked.key) != ("/api/status", "k"):
            return 401, ""
        return 200, {"region": region, "journal": "readable", "missing": missing}

    return respond


@pytest.mark.parametrize(
    ("regions", "key", "findings"),
    [
        (("east", "west"), "k", []),
        (("east",), "other", [("does not take the key", "az functionapp keys list")]),
        (("east", "east"), "k", [("both say that they are region east", "LOCKSTEP_REGION")]),
    ],
    ids=["sound", "a wrong key", "one region twice"],
)
def test_of_apps_that_answer_it_names_what_is_wrong_and_nothing_else(
    regions: tuple[str, ...], key: str, findings: list[tuple[str, str]], run: Run
) -> None:
    with running_app(healthy(regions[0])) as one, running_app(healthy(regions[-1])) as other:
        urls = ",".join([one.url, other.url][: len(regions)])
        found = find(run, "--url", urls, "--key", key, "doctor")

    assert len(found) == len(findings)
    for said, (wrong, step) in zip(found, findings, strict=True):
        assert (wrong in said["wrong"], step in said["next"]) == (True, True), said


def test_what_is_not_there_or_silent_or_no_app_is_named(run: Run) -> None:
    with running_app(lambda _: (200, None)) as silent, running_app(lambda _: (200, {})) as other:
        urls = f"http://127.0.0.1:1,{silent.url},{other.url}"
        gone, mute, stranger = find(run, "--timeout", "3", "--url", urls, "doctor")

    assert "http://127.0.0.1:1 cannot be reached" in gone["wrong"]
    assert "correct LOCKSTEP_URL" in gone["next"]
    assert "gave no answer" in mute["wrong"]
    assert "log" in mute["next"]
    assert "is no Lockstep app" in stranger["wrong"]


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
    reason: str, step: str, run: Run
) -> None:
    with running_app(healthy("east", **{"queue 'x' of west": reason})) as app:
        (found,) = find(run, "--url", app.url, "--key", "k", "doctor")

    assert found["check"] == "queues and roles"
    assert f"cannot use queue 'x' of west: {reason}" in found["wrong"]
    assert step in found["next"]


def test_there_is_advice_for_every_failure_that_needs_a_person_but_a_full_queue() -> None:
    needing = {r.why for r in FAILURE_RULES if r.failure_class is FailureClass.DESTINATION}

    assert needing - set(ADVICE) == {"The queue is full."}
    assert set(ADVICE) <= needing


def test_a_version_that_was_not_tested_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "cli.doctor.version", lambda name: "0.1" if name == "pydantic" else version(name)
    )

    (found,) = find(run, "doctor")

    assert found["wrong"].startswith("pydantic is 0.1, and ")
    assert "pip install -r" in found["next"]

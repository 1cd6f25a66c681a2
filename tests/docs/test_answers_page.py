"""The reference names every field of what the HTTP triggers answer about sessions."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import azure.functions as func
import pytest

from functions.http.descriptions import describe_entry, describe_standstill
from functions.http.operate import ResolutionBody, carry_out, list_standstills, show_session
from shared.domain.journal import (
    Attempt,
    Cursor,
    Entry,
    Halt,
    Lease,
    MessageIdentity,
    ModelVersion,
    Owner,
    Resolution,
    Status,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import (
    DestinationBatch,
    Outbox,
    OutputAction,
    OutputDecision,
    Rerun,
    Staged,
)
from shared.domain.standstill import Standstill, StandstillKind
from shared.engine.operate.resolve import ARGUMENTS, VERBS, ResolutionAction
from tests.docs.reference_page import RUNBOOK, rows, section
from tests.world import World, message

NUMBER = Number("g", 1, 2)
MESSAGE = Message("m", "s", "t", b"{}", NUMBER, "2013-01-01", "answers", "s", "m-0")
INLINE = Outbox(
    (DestinationBatch("out", (MESSAGE,)),),
    ("east",),
    refused={"m": "too large"},
    delivered={"east": ("out",)},
    blocked={"west": {"out": "missing"}},
    decided={"out": OutputDecision(OutputAction.RETRY, "Ada", "it exists now")},
)
# An entry that says everything an entry can say, though no single one ever does.
WHOLE = Entry(
    session="s",
    position=3,
    status=Status.WORKING,
    identities=(MessageIdentity("m", "t", "d", NUMBER),),
    state={"amounts": [1]},
    model=ModelVersion("Account", 1),
    state_at=None,
    attempt=Attempt("a", Owner("east", "i")),
    cursors={"g": Cursor(1, 2)},
    outbox=INLINE,
    lagging=("west",),
    parked={"g": 1},
    halt=Halt(2, NUMBER),
    message=MESSAGE,
    reason="because",
    resolution=Resolution("retry", "Ada", "a typo", at=1),
    alert="somebody look",
    closed=Resolution("close", "Ada", "looked at"),
    lease=Lease(30.0),
    answer={"total": 1},
)
ENTRIES = (
    WHOLE,
    replace(WHOLE, state=None, state_at=1),
    replace(WHOLE, outbox=INLINE.kept_at(Staged("a", 2))),
    replace(WHOLE, outbox=INLINE.kept_at(Rerun("d"))),
)
# Objects whose keys are data: the reference names the key, or has one row for the whole.
KEYED = {"cursors": "<group>"}
OUTBOX_MAPS = ("outbox.refused", "outbox.delivered", "outbox.blocked", "outbox.decided")
OPAQUE = frozenset({"state", "parked", "answer", "verbs", "outputs", *OUTBOX_MAPS})


def paths(described: Any, path: str = "") -> Iterator[str]:
    """The fields of a JSON document, such as `owner.region` and `messages[].id`."""
    if path in OPAQUE or not isinstance(described, dict | list):
        yield path
    elif isinstance(described, list):
        inner = {found for one in described for found in paths(one, f"{path}[]")}
        # A list of names is a field itself.
        yield from {path if found == f"{path}[]" else found for found in inner}
    else:
        for name, value in described.items():
            key = KEYED.get(path) or name
            yield from paths(value, f"{path}.{key}" if path else key)


def entry_fields(entry: Entry) -> set[str]:
    """The fields of an entry; of its outputs' only those that other messages do not have."""
    found = set(paths(describe_entry(entry)))
    as_message = {f"outbox.messages[].{one.removeprefix('message.')}" for one in found}
    return found - as_message


def answered(response: func.HttpResponse) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(response.get_body())
    return document


def test_every_field_of_an_entry_is_documented() -> None:
    fields = set().union(*(entry_fields(entry) for entry in ENTRIES))

    assert fields == set(rows("An entry over HTTP"))


def test_fields_that_are_always_there_are_said_to_be() -> None:
    bare = Entry(
        session="s",
        position=3,
        status=Status.PARKED,
        identities=WHOLE.identities,
        state=None,
        state_at=None,
        attempt=WHOLE.attempt,
        cursors=WHOLE.cursors,
    )

    always = {name for name, cells in rows("An entry over HTTP").items() if cells[0] == "always"}

    assert entry_fields(bare) == always


@pytest.mark.parametrize("status", Status)
def test_every_status_is_explained(status: Status) -> None:
    assert f"`{status}`" in rows("An entry over HTTP")["status"][1]


def test_every_way_to_keep_outputs_is_named() -> None:
    kept = {describe_entry(entry)["outbox"]["kept"] for entry in ENTRIES}

    assert all(f"`{way}`" in rows("An entry over HTTP")["outbox.kept"][1] for way in kept)


async def test_the_answers_have_the_fields_that_are_documented() -> None:
    world = World()
    await world.east.consumer.consume(message(0, kind="account.burn"))
    decision = {"action": "skip", "who": "Ada", "why": "a typo"}
    request = func.HttpRequest(
        "POST",
        "http://127.0.0.1/api/sessions/acc-7/resolution",
        route_params={"session": "acc-7"},
        body=json.dumps(decision).encode(),
    )

    looking = func.HttpRequest("GET", "/", route_params={"session": "acc-7"}, body=b"")
    shown = answered(await show_session(world.east, looking))
    asking = func.HttpRequest("GET", "http://127.0.0.1/api/faults", body=b"")
    faults = answered(await list_standstills(world.east, asking))
    resolved = answered(await carry_out(world.east, request))

    documented = rows("Answers about sessions")
    for route, answer in (
        ("GET /api/sessions/{session}", shown),
        ("GET /api/faults", faults),
        ("POST /api/sessions/{session}/resolution", resolved),
    ):
        fields = ", ".join(f'"{name}"' for name in answer)
        assert documented[route][0].startswith(f"`{{{fields}}}`")


def test_every_field_of_a_resolution_is_documented() -> None:
    text = section("Answers about sessions")
    fields = ", ".join(f'"{name}"' for name in ResolutionBody.model_fields)

    assert f"`{{{fields}}}`" in text


def test_every_field_of_a_standstill_is_documented_and_those_always_there_are() -> None:
    standing = [
        Standstill(kind, "s", 0.0, "because", 3, 1, {"m": "too large"}, ("west",), "", "g", 1, 2)
        for kind in StandstillKind
    ]
    bare = describe_standstill(Standstill(StandstillKind.PENDING, "s", 0.0, "because"))

    fields = {field for one in standing for field in paths(describe_standstill(one))}

    assert fields == set(rows("What stands still"))
    always = {name for name, cells in rows("What stands still").items() if cells[0] == "always"}
    assert set(paths(bare)) == always


@pytest.mark.parametrize("kind", StandstillKind)
def test_every_kind_of_standstill_is_explained_and_has_a_verb_in_the_runbook(
    kind: StandstillKind,
) -> None:
    assert f"`{kind}`" in rows("What stands still")["kind"][1]
    verbs = {f"`{action}`" for action in VERBS[kind]}

    assert verbs
    named = rows("Something stands still", RUNBOOK)[kind][-1]
    assert set(re.findall("`[a-z-]+`", named)) == verbs


def test_every_action_is_documented_with_what_it_takes_and_ends_something() -> None:
    documented = rows("Answers about sessions")

    for action in ResolutionAction:
        required, allowed = ARGUMENTS[action]
        assert set(re.findall("`([a-z]+)`", documented[action][0])) == required | allowed
    # A state is set so that another decision can end a halt, and nothing ends by erasing.
    ending = set(ResolutionAction) - {ResolutionAction.SET_STATE, ResolutionAction.ERASE}
    assert {action for actions in VERBS.values() for action in actions} == ending

"""The reference names every field of what the HTTP triggers answer about sessions."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import azure.functions as func
import pytest

from functions.descriptions import describe_entry
from functions.operate import (
    ResolutionBody,
    describe_refused,
    list_faults,
    resolve_fault,
    show_session,
)
from shared.domain.journal import (
    Attempt,
    Cursor,
    Entry,
    Halt,
    Lease,
    MessageIdentity,
    Owner,
    Resolution,
    Status,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import DestinationBatch, Outbox, Rerun, Staged
from tests.docs.reference_page import rows, section
from tests.world import World, message

NUMBER = Number("g", 1, 2)
MESSAGE = Message("m", "s", "t", b"{}", NUMBER, "2013-01-01", "answers", "s", "m-0")
INLINE = Outbox((DestinationBatch("out", (MESSAGE,)),), ("east",), refused={"m": "too large"})
# An entry that says everything an entry can say, though no single one ever does.
WHOLE = Entry(
    session="s",
    position=3,
    status=Status.WORKING,
    identities=(MessageIdentity("m", "t", "d", NUMBER),),
    state={"amounts": [1]},
    state_at=None,
    attempt=Attempt("a", Owner("east", "i")),
    cursors={"g": Cursor(1, 2)},
    outbox=INLINE,
    lagging=("west",),
    parked={"g": 1},
    halt=Halt(2, NUMBER),
    message=MESSAGE,
    reason="because",
    resolution=Resolution("retry", "Ada", "a typo"),
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
OPAQUE = frozenset({"state", "parked", "answer", "outbox.refused"})


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

    shown = answered(await show_session(world.east, "acc-7"))
    faults = answered(await list_faults(world.east))
    resolved = answered(await resolve_fault(world.east, request))

    documented = rows("Answers about sessions")
    for route, answer in (
        ("GET /api/sessions/{session}", shown),
        ("GET /api/faults", faults),
        ("POST /api/sessions/{session}/resolution", resolved),
    ):
        fields = ", ".join(f'"{name}"' for name in answer)
        assert documented[route][0].startswith(f"`{{{fields}}}`")
    (fault,) = faults["faults"]
    refused = {f"refused[].{name}" for name in describe_refused(WHOLE)}
    assert (set(fault) - {"refused"}) | refused == set(rows("A session with faults"))


def test_every_field_of_a_resolution_is_documented() -> None:
    text = section("Answers about sessions")
    fields = ", ".join(f'"{name}"' for name in ResolutionBody.model_fields)

    assert f"`{{{fields}}}`" in text

"""docs/reference.md has every function, error, answer, field and attribute that the code has."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import azure.functions as func
import pytest

from functions.app import build_app
from functions.handlers import orders
from functions.http.descriptions import describe_entry, describe_standstill
from functions.http.operate import ResolutionBody, carry_out, list_standstills, show_session
from functions.http.responses import REPORT_HELP, describe_problem, status_of
from functions.http.sagas import describe_refused_change
from shared.domain import errors, wire
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
    StateChange,
    Status,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import (
    DestinationBatch,
    Outbox,
    OutputAction,
    OutputDecision,
    Part,
    Rerun,
    Staged,
)
from shared.domain.resolution import ARGUMENTS, VERBS, ResolutionAction
from shared.domain.standstill import Standstill, StandstillKind
from shared.domain.steps import Beside, StepRecord, StepStatus
from shared.engine.sagas.sagas import SagaResponse
from tests.docs.pages import coded, page
from tests.world import World, message

PAGE = page("docs/reference.md")
RUNBOOK = page("docs/runbook.md")
STANDING = PAGE.section("What needs attention").table("field")
ENTRY = PAGE.section("An entry over HTTP").table("field")

NUMBER = Number("g", 1, 2)
MESSAGE = Message("m", "s", "t", b"{}", NUMBER, "2013-01-01", "answers", "s", "m-0")
INLINE = Outbox(
    (DestinationBatch("out", (MESSAGE,)),),
    ("east",),
    refused={"m": "too large"},
    delivered={"east": ("out",)},
    blocked={"west": {"out": "missing"}},
    decided={"out": OutputDecision(OutputAction.RETRY, "Ada", "it exists now")},
    sent={"east": {"other": Part(1, 2)}},
    sending=("east",),
)
# An entry that says everything an entry can say, though no single one ever does.
WHOLE = Entry(
    session="s",
    position=3,
    status=Status.WORKING,
    identities=(MessageIdentity("m", "t", "d", NUMBER, answer={"total": 1}, saga="k"),),
    state={"amounts": [1]},
    model=ModelVersion("Account", 1),
    state_at=None,
    attempt=Attempt("a", Owner("east", "i")),
    cursors={"g": Cursor(1, 2)},
    outbox=INLINE,
    lagging=("west",),
    steps={
        "charge": StepRecord("k", StepStatus.DONE, "payment 12"),
        "read": StepRecord("k", StepStatus.DONE, beside=Beside(0, 5_000)),
        "ship": StepRecord("k", StepStatus.FAILED, reason="the warehouse is closed"),
    },
    parked={"g": 1},
    halt=Halt(2, NUMBER),
    message=MESSAGE,
    reason="because",
    raised_at=("handlers/stock.py:41 in ship",),
    written_at=1_780_000_000.0,
    resolution=Resolution("retry", "Ada", "a typo", at=1),
    alert="somebody look",
    closed=Resolution("close", "Ada", "looked at"),
    lease=Lease(30.0),
    answer={"total": 1},
    is_ended=True,
)
ENTRIES = (
    WHOLE,
    replace(
        WHOLE, state=None, state_at=1, change=StateChange(3, ({"op": "remove", "path": "/a"},))
    ),
    replace(WHOLE, outbox=INLINE.kept_at(Staged("a", 2))),
    replace(WHOLE, outbox=INLINE.kept_at(Rerun("d"))),
)
UNANSWERED = (MessageIdentity("m", "t", "d", NUMBER),)
BARE = Entry("s", 3, Status.PARKED, UNANSWERED, None, None, WHOLE.attempt, WHOLE.cursors)
# Objects whose keys are data: the reference names the key, or has one row for the whole.
KEYED = {"cursors": "<group>"}
OUTBOX_MAPS = (
    "outbox.refused",
    "outbox.delivered",
    "outbox.blocked",
    "outbox.decided",
    "outbox.sent",
)
OPAQUE = frozenset(
    {"state", "change", "parked", "answer", "messages[].answer", "verbs", "outputs", *OUTBOX_MAPS}
)
# Errors that are raised, and have kinds of their own besides.
RAISED = (errors.InvalidMessage, errors.Unavailable, errors.NotStorable)


def test_every_function_and_route_is_documented() -> None:
    built = build_app(World(handlers=orders.handlers).east)
    found = {str(one.get_function_name()): one.get_trigger() for one in built.get_functions()}
    routes = {name: getattr(trigger, "route", None) for name, trigger in found.items()}

    triggers = PAGE.section("Functions").table("name").column()
    assert set(triggers) == set(routes)
    assert [n for n, route in routes.items() if route and f"/api/{route}" not in triggers[n]] == []


def leaves(kind: type[errors.LockstepError]) -> set[type[errors.LockstepError]]:
    """The errors that are raised; subclasses in other files refine them and are not documented."""
    children = [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
    below = {leaf for child in children for leaf in leaves(child)}
    return below | ({kind} if not children or kind in RAISED else set())


def test_every_error_is_documented_with_its_status() -> None:
    expected = {kind.__name__: str(status_of(kind("x"))) for kind in leaves(errors.LockstepError)}

    assert PAGE.section("Errors").table("name").column() == expected


def helps() -> list[str]:
    """Where answers say that the documentation explains them."""
    raised = sorted(leaves(errors.LockstepError), key=lambda kind: kind.__name__)
    over = SagaResponse(is_accepted=False, reason="it is over")
    standing = [Standstill(kind, "s", 0.0, "because") for kind in StandstillKind]
    return [
        *(describe_problem(kind("x"))["help"] for kind in raised),
        *(describe_standstill(one)["help"] for one in standing),
        describe_refused_change(over)["help"],
        REPORT_HELP,
    ]


@pytest.mark.parametrize("place", helps())
def test_help_leads_to_one_place_of_a_page(place: str) -> None:
    path, _, anchor = place.partition("#")

    assert page(path).anchors.count(anchor) == 1


def test_every_attribute_on_the_wire_is_documented() -> None:
    whole = Message(
        "m", "s", "t", b"{}", Number("g", 0, 0), "2013-01-01", "answers", "s", "m-0", reminder="r"
    )

    names = {name.removeprefix(wire.PREFIX) for name in wire.to_properties(whole)}

    assert names == PAGE.table("attribute").names()


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


def always(there: dict[str, str]) -> set[str]:
    return {name for name, when in there.items() if when == "always"}


def test_every_field_of_an_entry_is_documented_and_those_always_there_are() -> None:
    assert ENTRY.names() == set().union(*(entry_fields(entry) for entry in ENTRIES))
    assert always(ENTRY.column()) == entry_fields(BARE)


def test_every_status_and_every_way_to_keep_outputs_is_explained() -> None:
    kept = {describe_entry(entry)["outbox"]["kept"] for entry in ENTRIES}

    assert set(Status) <= set(coded(ENTRY.column(2)["status"]))
    assert kept <= set(coded(ENTRY.column(2)["outbox.kept"]))


async def test_the_answers_have_the_fields_that_are_documented() -> None:
    world = World()
    await world.east.consumer.consume(message(0, kind="account.burn"))
    decision = json.dumps({"action": "skip", "who": "Ada", "why": "a typo"}).encode()
    session = {"session": "acc-7"}
    look = func.HttpRequest("GET", "/", route_params=session, body=b"")
    list_all = func.HttpRequest("GET", "http://127.0.0.1/api/faults", body=b"")
    decide = func.HttpRequest("POST", "http://127.0.0.1/", route_params=session, body=decision)

    answers = {
        "GET /api/sessions/{session}": await show_session(world.east, look),
        "GET /api/faults": await list_standstills(world.east, list_all),
        "POST /api/sessions/{session}/resolution": await carry_out(world.east, decide),
    }

    documented = PAGE.table("route").column()
    for route, answer in answers.items():
        assert coded(documented[route])[0] == shape(json.loads(answer.get_body()))
    assert shape(ResolutionBody.model_fields) in PAGE.words


def shape(fields: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in fields) + "}"


def test_every_field_of_a_standstill_is_documented_and_those_always_there_are() -> None:
    whole = ("s", 0.0, "because", 3, 1, {"m": "too large"}, ("west",), "", "g", 1, 2, ("x:1 in f",))
    standing = [Standstill(kind, *whole, steps=("charge",)) for kind in StandstillKind]
    bare = describe_standstill(Standstill(StandstillKind.PENDING, "s", 0.0, "because"))

    fields = {field for one in standing for field in paths(describe_standstill(one))}
    assert STANDING.names() == fields
    assert always(STANDING.column()) == set(paths(bare))


@pytest.mark.parametrize("kind", StandstillKind)
def test_every_kind_of_standstill_is_explained_and_has_its_verbs_in_the_runbook(
    kind: StandstillKind,
) -> None:
    in_runbook = RUNBOOK.section("Something needs attention").table("kind").column(-1)

    assert kind in coded(STANDING.column(2)["kind"])
    assert set(coded(in_runbook[kind])) == set(VERBS[kind])


def test_every_action_is_documented_with_what_it_takes_and_ends_something() -> None:
    documented = PAGE.table("action").column()

    assert {action: set(coded(takes)) for action, takes in documented.items()} == {
        action: set.union(*map(set, ARGUMENTS[action])) for action in ResolutionAction
    }
    # A state is set so that another decision can end a halt, and what is erased or ended goes on.
    of_sessions = {ResolutionAction.SET_STATE, ResolutionAction.ERASE, ResolutionAction.END}
    ending = set(ResolutionAction) - of_sessions
    assert {action for actions in VERBS.values() for action in actions} == ending

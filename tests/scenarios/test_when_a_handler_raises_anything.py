"""A team's code raises what it likes, wherever it is called: a fault with the reason, and no more.

Each test has a strange exception and a place in which the engine calls a team's code. The message
becomes a fault that says what was raised and where, and other sessions go on.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, field_serializer, field_validator

from shared.domain.errors import InvalidState
from shared.domain.handler import Context, Handled, Handlers, Kind, Output, StateModel
from shared.domain.message import Message
from shared.domain.reports import REASON_CHARACTERS_MAX
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Faulted, PassedThrough, Processed
from shared.storage.entries import decode_entry
from tests.strange import FAILED_AT, RAISED, STRANGE, fail
from tests.world import RETRY, World, booked, message
from tests.world import Account as Ledger
from tests.world import Amount as Sum


class Account(BaseModel):
    """A state whose serializer, default or validator fails where an amount asks for it."""

    amounts: list[int] = []
    wanted: str = ""

    @field_serializer("wanted")
    def write(self, wanted: str) -> str:
        """Fail where it is asked for."""
        if wanted.startswith("write "):
            fail(wanted.removeprefix("write "))
        return wanted

    @field_validator("wanted")
    @classmethod
    def read(cls, wanted: str) -> str:
        """Fail where it is asked for."""
        if wanted.startswith("read "):
            fail(wanted.removeprefix("read "))
        return wanted


class Amount(BaseModel):
    """A body whose validator fails where it is asked to."""

    amount: int = 0
    wanted: str = ""

    @field_validator("wanted")
    @classmethod
    def check(cls, wanted: str) -> str:
        """Fail where it is asked for."""
        if wanted.startswith("check "):
            fail(wanted.removeprefix("check "))
        return wanted


class Told(BaseModel):
    """An output that fails when it is written down."""

    wanted: str

    @field_serializer("wanted")
    def write(self, wanted: str) -> str:
        """Fail."""
        fail(wanted)
        return wanted


handlers = Handlers()
RUNS: list[str] = []


def run(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Fail as the body says, or book its amount."""
    RUNS.append(context.message.id)
    place, _, raised = body.wanted.partition(" ")
    outputs: tuple[Output, ...] = ()
    match place:
        case "run":
            fail(raised)
        case "captured":
            context.captured("price", lambda: fail(raised))
        case "output":
            outputs = (Output("told", Told(wanted=raised)),)
        case "write" | "read":
            account = account.model_copy(update={"wanted": body.wanted})
    return Handled(account.model_copy(update={"amounts": [*account.amounts, body.amount]}), outputs)


async def run_async(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """The same, after something was waited for."""
    await asyncio.sleep(0)
    return run(account, body, context)


async def cancel_itself(account: Account, _: Amount, __: Context) -> Account:
    """Cancel the task that this runs in, and go on."""
    RUNS.append("")
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return account


async def await_what_was_cancelled(account: Account, _: Amount, __: Context) -> Account:
    """Wait for somebody else's task, which was cancelled."""
    RUNS.append("")
    other = asyncio.ensure_future(asyncio.Event().wait())
    other.cancel()
    await other
    return account


for kind in (Kind.PURE, Kind.DETERMINISTIC):
    handlers.register(kind.value, state=Account, body=Amount, kind=kind)(run)
handlers.register("effectful", state=Account, body=Amount, kind=Kind.EFFECTFUL)(run_async)
handlers.register("in a thread", state=Account, body=Amount, kind=Kind.EFFECTFUL)(run)
handlers.register("idempotent", state=Account, body=Amount, kind=Kind.IDEMPOTENT)(run_async)
for handle in (cancel_itself, await_what_was_cancelled):
    handlers.register(handle.__name__, state=Account, body=Amount, kind=Kind.EFFECTFUL, attempts=2)(
        handle
    )

KINDS = ("pure", "deterministic", "effectful", "in a thread", "idempotent")
TRIED_AGAIN = ("effectful", "in a thread", "idempotent")


def handles_async(kind: str) -> bool:
    return handlers.of(kind).handle is run_async


@pytest.fixture
def world() -> World:
    RUNS.clear()
    return World(handlers=handlers)


def asking(sequence: int, wanted: str, kind: str = "pure", session: str = "acc-7") -> Message:
    """The n-th message of a session, whose handler is to fail like this."""
    body = json.dumps({"amount": sequence + 1, "wanted": wanted}).encode()
    plain = message(sequence, kind=kind, session=session)
    return Message(plain.id, session, kind, body, plain.number)


async def fault_of(world: World, sent: Message) -> tuple[str, list[str]]:
    """Why a message failed and where, when it has come and another session's has, too."""
    outcome = await world.east.consumer.consume(sent)
    other = await world.east.consumer.consume(asking(0, "", "effectful", session="acc-8"))

    assert isinstance(outcome, Faulted)
    assert isinstance(other, Processed)
    fault, (report,) = world.entries()[-1], world.reports()
    assert fault["status"] == "faulted"
    assert fault["message"]["body"].encode() == sent.body
    assert (report["reason"], report.get("raised_at")) == (fault["reason"], fault.get("raised_at"))
    assert decode_entry(fault).raised_at == tuple(fault.get("raised_at", ()))
    return fault["reason"], fault.get("raised_at", [])


@STRANGE
@pytest.mark.parametrize("kind", KINDS)
async def test_when_a_handler_raises_it_its_message_is_a_fault(
    world: World, raised: str, kind: str
) -> None:
    reason, raised_at = await fault_of(world, asking(0, f"run {raised}", kind))

    assert reason == RAISED[raised][1]
    in_turn = [line.split(" in ")[1] for line in raised_at[: raised_at.index(FAILED_AT) + 1]]
    assert in_turn == [*(["run_async"] if handles_async(kind) else []), "run", "fail"]
    # What is no Exception is a try like any other.
    assert RUNS.count(asking(0, "").id) == (3 if kind in TRIED_AGAIN else 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_when_a_handler_raises_the_end_of_an_iteration_its_message_is_a_fault(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # Neither a coroutine nor a future lets it pass, so that Python raises another in its place.
    monkeypatch.setitem(RAISED, "exit", (lambda: StopIteration("over"), ""))

    reason, raised_at = await fault_of(world, asking(0, "run exit", kind))

    assert "StopIteration" in reason
    assert FAILED_AT in raised_at


@STRANGE
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["captured", "output", "write"])
async def test_when_what_a_handler_gives_raises_it_its_message_is_a_fault(
    world: World, raised: str, kind: str, place: str
) -> None:
    reason, raised_at = await fault_of(world, asking(0, f"{place} {raised}", kind))

    assert RAISED[raised][1].partition(":")[0] in reason
    assert FAILED_AT in raised_at or "PydanticSerializationError" in reason


@STRANGE
@pytest.mark.parametrize("kind", KINDS)
async def test_when_a_validator_of_the_body_raises_it_the_fault_names_the_validator(
    world: World, raised: str, kind: str
) -> None:
    reason, raised_at = await fault_of(world, asking(0, f"check {raised}", kind))

    if "Value" not in RAISED[raised][1].partition(":")[0]:
        assert reason.startswith(f"message {asking(0, '').id!r}: the validator check raised ")
        assert RAISED[raised][1] in reason
        assert FAILED_AT in raised_at
    assert reason.startswith(f"message {asking(0, '').id!r}: ")
    # The message is wrong, so it would be no use to try again.
    assert [asking(0, "", session="acc-8").id] == RUNS


@STRANGE
@pytest.mark.parametrize("kind", KINDS[:-1])
async def test_when_a_validator_of_the_state_raises_it_the_state_cannot_be_read(
    world: World, raised: str, kind: str
) -> None:
    await world.east.consumer.consume(asking(0, ""))
    # As an earlier version of the model stored it.
    world.entries()[0]["state"]["wanted"] = f"read {raised}"
    world.east = world.worker("east")

    reason, _ = await fault_of(world, asking(1, "", kind))

    assert reason.startswith("the stored state is no Account: ")
    if "Value" not in RAISED[raised][1].partition(":")[0]:
        assert f"the validator read raised {RAISED[raised][1]}"[:200] in reason


@STRANGE
async def test_when_an_upgrade_raises_it_the_state_cannot_be_read(raised: str) -> None:
    world = World()
    await world.east.consumer.consume(message(0))

    def upgrade(_: dict[str, Any], __: int) -> Ledger:
        fail(raised)
        return Ledger()

    newer = Handlers()
    state = StateModel(Ledger, version=2, upgrade=upgrade)
    newer.register("account.add", state=state, body=Sum)(lambda one, _, __: one)
    world.handlers = newer
    world.east = world.worker("east")

    outcome = await world.east.consumer.consume(message(1))

    assert isinstance(outcome, Faulted)
    assert outcome.entry.halt is not None
    reason = f"the upgrade of 'Account' from version 1 failed: {RAISED[raised][1]}"
    assert outcome.entry.reason == reason[:REASON_CHARACTERS_MAX]
    assert FAILED_AT in outcome.entry.raised_at


@STRANGE
async def test_when_one_of_a_fold_raises_it_the_others_keep_their_effects(
    world: World, raised: str
) -> None:
    sent = [asking(n, f"run {raised}" if n == 2 else "") for n in range(4)]

    outcomes = await asyncio.gather(
        *(world.east.consumer.consume(one, n) for n, one in enumerate(sent))
    )

    assert [type(outcome) for outcome in outcomes[:3]] == [Processed, Processed, Faulted]
    assert [entry["status"] for entry in world.entries()] == ["completed", "faulted", "parked"]
    assert world.entries()[1]["reason"] == RAISED[raised][1]
    assert world.amounts() == [1, 2]


@pytest.mark.parametrize("handle", [cancel_itself, await_what_was_cancelled])
async def test_when_a_handler_is_cancelled_by_itself_it_is_tried_again_and_a_fault(
    world: World, handle: Callable[..., Any]
) -> None:
    outcome = await world.east.consumer.consume(asking(0, "", handle.__name__))

    assert isinstance(outcome, Faulted)
    assert outcome.entry.reason == "CancelledError: no message"
    assert len(RUNS) == 2


async def test_when_the_invocation_is_cancelled_it_is_no_fault_and_the_claim_is_taken_over() -> (
    None
):
    began, waiting = asyncio.Event(), Handlers()

    @waiting.register("wait", state=Ledger, body=Sum, kind=Kind.EFFECTFUL)
    async def wait(account: Ledger, body: Sum, _: Context) -> Ledger:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return booked(account, body)

    world = World(handlers=waiting)
    taking = asyncio.create_task(world.east.consumer.consume(message(0, kind="wait")))
    await began.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert [entry["status"] for entry in world.entries()] == ["working"]

    world.clock.seconds += 60
    await world.west.consumer.consume(message(0, kind="wait"))

    assert world.amounts() == [1]
    assert world.reports() == []


async def test_when_it_is_mended_a_retry_runs_it_and_its_frames_stay_with_the_fault(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = asking(0, "run exit")
    await world.east.consumer.consume(sent)
    monkeypatch.setitem(RAISED, "exit", (lambda: ValueError("still"), ""))
    again = await world.west.resolver.resolve("acc-7", RETRY)
    edit = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount": 7}')
    mended = await world.west.resolver.resolve("acc-7", edit)

    assert (again.reason, again.raised_at[-1]) == ("ValueError: still", FAILED_AT)
    assert (mended.reason, mended.raised_at) == (None, ())
    assert world.amounts() == [7]


@STRANGE
async def test_when_a_person_sets_a_state_that_raises_it_is_refused_by_name(
    world: World, raised: str
) -> None:
    await world.east.consumer.consume(asking(0, ""))
    body = json.dumps({"amounts": [1], "wanted": f"read {raised}"}).encode()
    decision = ResolutionRequest(ResolutionAction.SET_STATE, "Ada", "a typo", body)

    with pytest.raises(InvalidState, match="this is no state of 'Account': "):
        await world.east.resolver.resolve("acc-7", decision)

    assert world.amounts() == [1]


async def test_when_an_idempotent_handler_raises_it_the_report_says_where(world: World) -> None:
    sent = Message("n", "acc-7", "idempotent", b'{"wanted": "run exit"}')

    outcome = await world.east.consumer.consume(sent)

    assert isinstance(outcome, PassedThrough)
    (report,) = world.reports()
    assert (outcome.fault, report["reason"]) == ("SystemExit: bad record",) * 2
    assert report["raised_at"][-1] == outcome.raised_at[-1] == FAILED_AT


async def test_an_old_fault_without_frames_is_read_as_ever(world: World) -> None:
    await world.east.consumer.consume(asking(0, "run exit"))
    (fault,) = world.entries()
    del fault["raised_at"]

    assert decode_entry(fault).raised_at == ()
    (listed,) = (await world.east.standstills.find(limit=9)).standstills
    assert (listed.cause, listed.raised_at) == ("SystemExit: bad record", ())


async def test_what_lockstep_refuses_itself_is_told_without_frames(world: World) -> None:
    sent = replace(asking(0, ""), id="n", body=b'{"amount": "much"}')

    outcome = await world.east.consumer.consume(sent)

    assert isinstance(outcome, Faulted)
    assert outcome.entry.reason is not None
    assert outcome.entry.reason.startswith("message 'n': amount: ")
    assert outcome.entry.raised_at == ()

"""Put handlers through everything that messages go through, and compare with an undisturbed run."""

import asyncio
import json
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, product, zip_longest
from typing import Any

from shared.domain.handler import Handlers
from shared.domain.journal import Json, Status
from shared.domain.message import Message
from shared.domain.steps import OnUnknown, StepUnknown
from shared.storage.entries import decode_identities
from shared.testkit.given import Found, Given, as_sent, in_words
from shared.testkit.injected_faults import FaultPlan
from shared.testkit.other_process import require_same_elsewhere
from shared.testkit.purity import checked_runs
from shared.testkit.regions import ERROR_QUEUE, REGIONS, TwoRegions, call_faults

RUNS_MAX = 1_000
HASH_SEEDS = (1, 2)
AT_ONCE = 10
EAST, WEST = REGIONS
# The beginning of the reason of a fault that is a step which may have happened.
UNKNOWN = f"{StepUnknown.__name__}: "

# A region's queue, a session in it, and the producer group that orders what was sent to it.
type Stream = tuple[str, str, str, str]
# Id, type and body of a message.
type SentOutput = tuple[str, str, bytes]
type Deliver = Callable[[TwoRegions, Sequence[Message]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    session: str
    type: str
    reason: str
    # Where its handler raised: "file:line in function", the innermost frame last.
    raised_at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """States, outputs and faults; each output once, in the order of first arrival."""

    states: Mapping[str, Json]
    outputs: Mapping[Stream, tuple[SentOutput, ...]]
    faults: tuple[Fault, ...]
    sent: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the messages, the same in every one of the runs.

    `repeated` are the steps that were done twice in some run, as OnUnknown.REPEAT allows: their
    worker died after the call, before what came of it was noted.
    """

    result: RunResult
    runs: int
    repeated: frozenset[str] = frozenset()

    def state(self, session: str) -> dict[str, Any]:
        """The state of a session in the end; a KeyError names the sessions that there are."""
        if session not in self.result.states:
            raise KeyError(f"no session {session!r} among {sorted(self.result.states)}")
        return dict(self.result.states[session])

    def outputs(self, message_type: str | None = None) -> list[dict[str, Any]]:
        """The bodies of the outputs of a type, or of all, in the order of sending."""
        wanted = (m for m in self.result.sent if message_type in (None, m.type))
        return [json.loads(message.body) for message in wanted]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The outputs whole: ids, numbers and sessions included."""
        return self.result.sent

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The messages that became faults, each with `reason` and `raised_at`."""
        return self.result.faults


def exercise(
    handlers: Handlers,
    messages: Sequence[Given],
    *,
    runs_max: int = RUNS_MAX,
    hash_seeds: Sequence[int] = HASH_SEEDS,
    faults: bool = False,
) -> Report:
    """Run the messages undisturbed, then under every disturbance; all must come to the same.

    Outputs for a type that has a handler among these are delivered to it. Pure and deterministic
    handlers are also watched, run again, and run in other processes. Raises Found, an
    AssertionError, for the first thing that is wrong, such as a message that becomes a fault; with
    `faults` faults are expected, and the report has them. Failures are injected into calls in at
    most `runs_max` runs.
    """
    sent = as_sent(messages)
    require_same_elsewhere(checked_runs(handlers, sent), hash_seeds)
    logger = logging.getLogger("lockstep")
    before = logger.level
    # What the engine logs of so many failures would hide what is found.
    logger.setLevel(logging.CRITICAL)
    try:
        return asyncio.run(compare_runs(handlers, sent, runs_max, faults=faults))
    finally:
        logger.setLevel(before)


async def compare_runs(
    handlers: Handlers, messages: Sequence[Message], runs_max: int, *, faults: bool
) -> Report:
    regions = TwoRegions(handlers)
    undisturbed = await run(regions, in_turn, messages)
    if undisturbed.faults and not faults:
        first = undisturbed.faults[0]
        why = ", raised at ".join((first.reason, *first.raised_at))
        raise Found(
            f"a message of {first.session!r} ({first.type}) becomes a fault: {why}; where that is"
            " meant, say faults=True"
        )
    runs, repeated = 1, set(regions.calls.again)
    for name, deliver in disturbances(messages):
        regions = TwoRegions(handlers)
        with found_when(lambda: name):  # noqa: B023 - it is called before the next one
            require_same_result(undisturbed, await run(regions, deliver, messages))
            repeated |= repeated_steps(regions)
        runs += 1
    for plan in fault_plans(len(regions.faults.made), runs_max):
        delivery = InterruptedDelivery()
        with found_when(lambda: f"when, during {delivery.interrupted}, {plan}"):  # noqa: B023
            disturbed_regions = TwoRegions(handlers, plan)
            disturbed = await run(disturbed_regions, delivery.deliver, messages)
            require_same_result(undisturbed, disturbed)
            repeated |= repeated_steps(disturbed_regions)
        runs += 1
    return Report(undisturbed, runs, frozenset(repeated))


def repeated_steps(regions: TwoRegions) -> set[str]:
    """Return the steps that were done twice, which their policy allows; raises Found for others."""
    for name, policy in regions.calls.again.items():
        if policy is not OnUnknown.REPEAT:
            raise Found(f"step {name!r} was done twice, because its look-up raised NotDone")
    return set(regions.calls.again)


def fault_plans(calls: int, runs_max: int) -> Iterator[FaultPlan]:
    """Every call going wrong in every way; evenly chosen ones where that is too many."""
    every = list(call_faults(calls))
    step = max(1, -(-len(every) // runs_max))
    yield from map(FaultPlan, every[::step])


async def run(regions: TwoRegions, deliver: Deliver, messages: Sequence[Message]) -> RunResult:
    await deliver(regions, messages)
    await regions.finish()
    return await read_result(regions)


def require_same_result(undisturbed: RunResult, disturbed: RunResult) -> None:
    if found := difference(undisturbed, disturbed):
        raise Found(found)


@contextmanager
def found_when(name: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except Found as found:
        raise Found(f"{name()}: {found}") from None


# What messages go through in production, each as one way to deliver the same messages.


async def in_turn(regions: TwoRegions, messages: Sequence[Message], region: str = EAST) -> None:
    for message in messages:
        await regions.settle(region, message)


async def twice(regions: TwoRegions, messages: Sequence[Message]) -> None:
    for message in messages:
        await regions.settle(EAST, message)
        await regions.settle(EAST, message)


async def in_both_regions(regions: TwoRegions, messages: Sequence[Message]) -> None:
    for message in messages:
        await asyncio.gather(regions.settle(EAST, message), regions.settle(WEST, message))


async def with_late_copies(regions: TwoRegions, messages: Sequence[Message]) -> None:
    """All messages, and copies of all of them to workers that remember nothing."""
    await in_turn(regions, messages)
    for region in REGIONS:
        regions.workers[region] = regions.new_worker(region)
        for message in reversed(messages):
            await regions.settle(region, message)


async def backwards(regions: TwoRegions, messages: Sequence[Message]) -> None:
    await in_turn(regions, messages[::-1])


async def together(regions: TwoRegions, messages: Sequence[Message]) -> None:
    for _, group in groupby(messages, lambda message: message.session):
        gathered = list(group)
        for start in range(0, len(gathered), AT_ONCE):
            await regions.settle(EAST, *gathered[start : start + AT_ONCE])


async def during_an_outage(regions: TwoRegions, messages: Sequence[Message]) -> None:
    regions.bus.unavailable = {WEST}
    await in_turn(regions, messages)
    regions.bus.unavailable = set()


async def shuffled(seed: int, regions: TwoRegions, messages: Sequence[Message]) -> None:
    """All messages and their copies in any order, to any region, some to a new worker."""
    draw = random.Random(seed)  # noqa: S311 - to be repeated, not to surprise
    deliveries = list(product(messages, REGIONS))
    draw.shuffle(deliveries)
    for message, region in deliveries:
        if draw.random() < 0.2:
            regions.workers[region] = regions.new_worker(region)
        await regions.settle(region, message)


def disturbances(messages: Sequence[Message]) -> Iterator[tuple[str, Deliver]]:
    yield "when only the other region takes them", partial(in_turn, region=WEST)
    yield "when each message comes twice", twice
    yield "when both regions take each message at once", in_both_regions
    yield "when copies of all messages come late", with_late_copies
    yield "when several come at once", together
    yield "when one region is unavailable for a while", during_an_outage
    # Un-numbered messages have no order but that of their arrival.
    if all(message.number for message in messages):
        yield "when they come backwards", backwards
        for seed in range(3):
            yield f"in shuffled order {seed}", partial(shuffled, seed)


@dataclass
class InterruptedDelivery:
    """Delivers in turn, and notes the message during which a call went wrong."""

    interrupted: str = "the sweep"

    async def deliver(self, regions: TwoRegions, messages: Sequence[Message]) -> None:
        for message in messages:
            before = len(regions.faults.made)
            await regions.settle(EAST, message)
            if regions.faults.at.keys() & range(before, len(regions.faults.made)):
                self.interrupted = in_words(message)


async def read_result(regions: TwoRegions) -> RunResult:
    worker = regions.new_worker(EAST).worker
    sessions = sorted(s for s in regions.journal.partitions if regions.journal.store.newest(s))
    arrived = {
        at: [delivered.message for delivered in queue] for at, queue in regions.bus.queues.items()
    }
    streams: dict[Stream, dict[SentOutput, None]] = defaultdict(dict)
    for (region, queue), messages in arrived.items():
        for message in messages:
            group = message.number.group if message.number else ""
            if queue == ERROR_QUEUE and json.loads(message.body)["reason"].startswith(UNKNOWN):
                # A person has decided about it, as about the fault that it reports.
                continue
            output = (message.id, message.type, message.body)
            streams[region, queue, message.session, group][output] = None
    outputs = (queue for at, queue in arrived.items() if at[0] == EAST and at[1] != ERROR_QUEUE)
    sent = chain.from_iterable(outputs)
    faults = (
        Fault(
            session,
            decode_identities(document)[0].type,
            document["reason"],
            tuple(document.get("raised_at", ())),
        )
        for session, documents in regions.journal.partitions.items()
        for document in documents.values()
        if document.get("status") == Status.FAULTED.value
        # What a person said of its steps ended a fault, unless nothing did.
        and not (document.get("unknown") and not document.get("faulted"))
    )
    return RunResult(
        states={s: (await worker.input_after(await worker.read_head(s))).state for s in sessions},
        # The order of what is not numbered does not count.
        outputs={at: tuple(found if at[-1] else sorted(found)) for at, found in streams.items()},
        faults=tuple(sorted(faults, key=lambda f: (f.session, f.type, f.reason))),
        sent=tuple(dict.fromkeys(sent)),
    )


def difference(undisturbed: RunResult, disturbed: RunResult) -> str | None:
    for session in sorted({*undisturbed.states, *disturbed.states}):
        before, after = (
            "none" if state is None else json.dumps(state, sort_keys=True)
            for state in (undisturbed.states.get(session), disturbed.states.get(session))
        )
        if before != after:
            return f"the state of {session!r} is {after}, undisturbed it is {before}"
    if undisturbed.faults != disturbed.faults:
        return f"the faults are {disturbed.faults}, undisturbed they are {undisturbed.faults}"
    for stream in sorted({*undisturbed.outputs, *disturbed.outputs}):
        changed = output_difference(
            undisturbed.outputs.get(stream, ()), disturbed.outputs.get(stream, ())
        )
        if changed:
            region, queue, session, _ = stream
            return f"in queue {queue!r} of region {region}, for session {session!r}, {changed}"
    return None


def output_difference(
    undisturbed: tuple[SentOutput, ...], disturbed: tuple[SentOutput, ...]
) -> str | None:
    def named(output: SentOutput) -> str:
        message_id, message_type, body = output
        return f"{message_type} {body.decode()} (id {message_id})"

    for place, (before, after) in enumerate(zip_longest(undisturbed, disturbed), start=1):
        if after is None:
            return f"output {place} is missing: {named(before)}"
        if before is None:
            return f"output {place} is too many: {named(after)}"
        if before != after:
            return f"output {place} is {named(after)}, undisturbed it is {named(before)}"
    return None

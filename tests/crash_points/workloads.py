"""Pieces of work that between them make every call that the engine can make.

Each is a coroutine over two regions in which calls go wrong, or not, and returns its result, which
must not depend on what went wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import MagicMock, patch

from proof.simulation.world.variant import small_limits
from shared.adapters.cosmos_leases import CosmosLeases
from shared.domain import next_entry
from shared.domain.bulk import BulkDecision, BulkState
from shared.domain.errors import (
    NotBlocked,
    NotHalted,
    NotMissing,
    NotOpen,
    TooLarge,
    Unavailable,
)
from shared.domain.handler import Context, Handled, Handlers
from shared.domain.journal import Repetition
from shared.domain.message import Message
from shared.domain.outbox import EVERY_QUEUE, OUTPUTS, OutputAction, OutputDecision
from shared.domain.producer import HTTP_SOURCE, Draft, Ledger, ProducerOptions
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.plan import SagaState, StepOutcome
from shared.domain.standstill import StandstillKind
from shared.domain.wire import to_properties
from shared.engine.build import Services
from shared.engine.consume import duplicates
from shared.engine.consume.outcomes import Answered, Reply, Waiting
from shared.engine.dispatch import deliver
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.operate.error_queue import FINISH_SECONDS_MAX, RepeatRequest
from shared.engine.operate.heartbeats import Heartbeats
from shared.engine.operate.overview import Overview
from shared.engine.publish.publish import Producer
from shared.engine.publish.readiness import LOOK_AGAIN_SECONDS, Readiness
from shared.ports import DeadLetter
from shared.storage.queries import partition_query
from shared.testkit.injected_faults import CallFault
from shared.testkit.memory import MemoryContainer, MemoryJournal
from shared.testkit.memory_store import EPOCH_SECONDS, MemoryStore
from shared.testkit.regions import TwoRegions
from tests.business import LEASE_OVER, payment, plain
from tests.crash_points.regions import IMPATIENT, BusinessRegions, let_others_run
from tests.saga_stage import order
from tests.saga_walks import insist, walked
from tests.sized_outputs import WRITER, Sizes, Written, letters, writing
from tests.world import DELAY_SECONDS, REGIONS, message, require

type Work = Callable[[BusinessRegions], Awaitable[object]]

SESSION = "acc-7"
BILLS = [message(n, kind="account.bill") for n in range(8)]
KEPT_FOR = {"LOCKSTEP_QUEUE": "in"}
ASKED = replace(plain(0, "account.ask"), id="k-2", source=HTTP_SOURCE, body=b'{"amount":7}')
DRAFTS = [Draft(f"m-{n}", "account.add", b'{"amount":1}') for n in range(3)]


async def delivered(regions: BusinessRegions, *batches: Sequence[Message]) -> object:
    """Deliver until all is settled, and let the sweeps find what is left."""
    await regions.take(*batches)
    return await regions.end()


async def in_turn(regions: BusinessRegions) -> object:
    """Messages in their order, and a copy of the first."""
    return await delivered(regions, BILLS[:1], BILLS[1:2], BILLS[:1])


async def gapped(regions: BusinessRegions) -> object:
    """A message before its turn, which is parked and drained."""
    return await delivered(regions, BILLS[:1], BILLS[2:3], BILLS[1:2])


async def drained_together(regions: BusinessRegions) -> object:
    """Messages before their turn, which are drained in one entry, and one that is drained alone."""
    early = [BILLS[3], BILLS[1], BILLS[2], message(4, kind="account.hint")]
    return await delivered(regions, *([one] for one in early), BILLS[:1])


async def parked_twice(regions: BusinessRegions) -> object:
    """A copy of a parked message, which is not the newest of those that are parked."""
    return await delivered(regions, BILLS[1:2], BILLS[2:3], BILLS[1:2], BILLS[:1])


async def in_batches(regions: BusinessRegions) -> object:
    """Two batches, the first with a gap."""
    return await delivered(regions, [*BILLS[:2], BILLS[3]], BILLS[2:5])


async def without_numbers(regions: BusinessRegions) -> object:
    """A message without a number, and its copy."""
    return await delivered(regions, [plain(0)], [plain(0)])


@patch.multiple(duplicates, PAGE=2, MARGIN=1)
async def late_copies(regions: BusinessRegions) -> object:
    """Copies of what two groups sent in turn, and another content under a used number."""
    others = [message(n, 50 + n, kind="account.bill", group="shop") for n in range(3)]
    with regions.undisturbed():
        await regions.take(*([one] for one in [others[0], *BILLS, *others[1:]]))
    await regions.take([BILLS[2]], [others[0]], [replace(BILLS[3], body=b'{"amount":99}')])
    return await regions.end()


@patch.object(next_entry, "CURSORS_MAX", 2)
async def from_many_senders(regions: BusinessRegions) -> object:
    """Messages, a gap and copies of senders whose cursors are evicted in turn; and a batch."""
    groups = ("bank", "shop", "till", "desk")
    sent = [
        [message(n, 10 * n + i, kind="account.bill", group=group) for i, group in enumerate(groups)]
        for n in range(3)
    ]
    with regions.undisturbed():
        await regions.take(*([one] for one in sent[0]))
    # One after the other: only messages of the same sender have an order.
    for batch in ([sent[2][0]], [sent[1][1]], [sent[1][0]], [sent[0][2]], sent[1][2:]):
        await regions.take(batch)
    return await regions.end()


@patch.multiple(next_entry, STATE_INLINE_BYTES_MAX=70, CHANGE_PART=1)
async def with_a_large_state(regions: BusinessRegions) -> object:
    """Messages that change a little of a large state; an older release parked one of them."""
    large = replace(BILLS[0], body=b'{"amount":1000000000000000}')
    with regions.undisturbed():
        await regions.take([large], BILLS[1:2], BILLS[3:4])
        del require(regions.journal.store.newest(SESSION))["change"]
    regions.replace_workers("both")
    # What comes next is written whole, and then a change of it.
    return await delivered(regions, BILLS[2:3])


async def decided_together(regions: BusinessRegions) -> object:
    """Two poisons of one cause, which a person skips by one decision."""
    poison = partial(message, 0, kind="account.burn")
    await regions.take([poison()], [poison(session="acc-8")], BILLS[1:2])
    wanted = BulkDecision("decided", "skip", "Ada", "a mistake", kind=StandstillKind.HALT)
    begun = await regions.insist(lambda worker: worker.bulk.begin(wanted))
    while begun.state is BulkState.RUNNING:
        regions.clock.seconds += LEASE_OVER
        begun = await regions.insist(lambda worker: worker.bulk.go_on(wanted.id, 10.0))
    return await regions.end()


async def corrected(regions: BusinessRegions) -> object:
    """A poison that a person corrects, and the message parked behind it."""
    await regions.take([message(0, kind="account.burn")], BILLS[1:2])
    decision = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typing error", b'{"amount":-3}')
    await regions.insist(partial(resolve, decision))
    return await regions.end()


async def resolve(decision: ResolutionRequest, worker: Services) -> None:
    """Decide as a person does, unless a worker that died then has."""
    await worker.standstills.find(limit=10)
    with suppress(NotHalted, NotMissing, NotOpen):
        await worker.resolver.resolve(SESSION, decision)


async def skipped(regions: BusinessRegions) -> object:
    """A number that never comes, which a person sees and skips, and its message comes late."""
    await regions.take(BILLS[:1], BILLS[2:3])
    regions.clock.seconds += regions.policy.standstill_seconds
    decision = ResolutionRequest(
        ResolutionAction.SKIP_NUMBER, "Ada", "lost for good", group="bank", number=1
    )
    await regions.insist(partial(resolve, decision))
    await regions.take(BILLS[1:2])
    return await regions.end()


async def closed(regions: BusinessRegions) -> object:
    """An output that no queue takes, which a person sees and closes, and one that a region misses.

    The flag of an earlier version is met on the way.
    """
    regions.bus.largest = {(region, "out"): 1_000 for region in REGIONS}
    with regions.undisturbed():
        await regions.take([message(0, 11, kind="account.boast")])
        with regions.without_west():
            await regions.take(BILLS[1:2], [message(2, kind="account.hint")])
    stored = regions.journal.partitions[SESSION]
    hint = max(d["id"] for d in stored.values() if "identities" in d)
    regions.journal.store.put(SESSION, stored[hint] | {"faulted": True})

    async def close(worker: Services) -> None:
        sent = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "sent by hand", at=0)
        await resolve(sent, worker)
        again = ResolutionRequest(ResolutionAction.DELIVER, "Ada", "the west is back")
        await worker.resolver.deliver(SESSION, again)

    await regions.insist(close)
    result = await regions.end()
    page = await regions.workers["east"].standstills.find(limit=10)
    assert page.standstills == ()
    return result


async def erased(regions: BusinessRegions) -> object:
    """A session that a person has erased, and that goes on."""
    with regions.undisturbed():
        await regions.take(BILLS[:1], BILLS[1:2])
        await regions.finish()
    decision = ResolutionRequest(ResolutionAction.ERASE, "Ada", "asked to be forgotten")
    await regions.insist(lambda worker: worker.resolver.resolve(SESSION, decision))
    await regions.take(BILLS[2:3])
    return await regions.end()


async def measured(regions: BusinessRegions) -> object:
    """Outputs that a region misses, and a message that waits, while somebody listens."""
    with patch.object(BusinessRegions, "new_worker", new_listened_worker):
        regions.replace_workers("both")
        with regions.without_west():
            await regions.take(BILLS[:1], BILLS[2:3])
            regions.clock.seconds += LEASE_OVER
            for region in REGIONS:
                await regions.insist(lambda worker: worker.recovery.sweep(), region)
        await regions.take(BILLS[1:2])
        return await regions.end()


def new_listened_worker(regions: BusinessRegions, region: str) -> Services:
    """A worker whose telemetry goes nowhere."""
    services = TwoRegions.new_worker(regions, region)
    services.worker.telemetry = MagicMock()
    return services


async def effectful(regions: BusinessRegions) -> object:
    """A handler that calls the outside, and a message that comes meanwhile."""
    return await delivered(regions, [payment(0)], BILLS[1:2])


async def in_steps(regions: BusinessRegions) -> object:
    """A handler that calls the outside in steps, and a message that comes meanwhile."""
    return await delivered(regions, [payment(0, kind="account.trade")], BILLS[1:2])


async def tried_again(regions: BusinessRegions) -> object:
    """A handler whose first call of the outside fails."""
    failed: list[bool] = []

    async def fail_once() -> None:
        await let_others_run()
        if not failed:
            failed.append(True)
            raise ConnectionError("busy")

    regions.outside.before = fail_once
    return await delivered(regions, [payment(0)], BILLS[1:2])


async def left_alone(regions: BusinessRegions) -> object:
    """A claim whose owner died, and nobody delivers its message again: the sweep takes it over."""
    asked = asyncio.Event()

    async def wait_for_ever() -> None:
        asked.set()
        await asyncio.Event().wait()

    regions.outside.before = wait_for_ever
    with regions.undisturbed():
        owner = asyncio.ensure_future(regions.workers["east"].consumer.consume(payment(0)))
        await asked.wait()
        owner.cancel()
        await asyncio.wait({owner})
    regions.outside.before = let_others_run
    return await regions.end()


async def idempotent(regions: BusinessRegions) -> object:
    """A handler without a journal entry, while one region is unavailable."""
    with regions.without_west():
        await regions.take([replace(payment(0, "account.note"), number=None)])
    return await regions.end()


async def to_an_unavailable_region(regions: BusinessRegions) -> object:
    """Outputs that a region misses, which the change feed shows when it is back."""
    with regions.without_west():
        await regions.take(BILLS[:1], BILLS[1:2])
    shown = await regions.journal.journal.pending(SESSION, REGIONS)
    await regions.insist(lambda worker: worker.recovery.recover(shown))
    return await regions.end()


async def staged(regions: BusinessRegions) -> object:
    """Outputs that are staged, as they do not fit an entry."""
    with small_limits(wanted=True):
        return await delivered(regions, [writing([1_300, 1_000])], [writing([3], 1)])


async def staged_under_a_claim(regions: BusinessRegions) -> object:
    """Outputs of a handler that calls the outside, which do not fit an entry either."""
    with small_limits(wanted=True):
        outside = writing([1_300, 1_000], kind="write.outside")
        return await delivered(regions, [outside], [writing([3], 1)])


async def delivered_meanwhile(regions: BusinessRegions) -> object:
    """Staged outputs that a sweep sends to a region while a slow worker is about to."""
    with small_limits(wanted=True):
        with regions.without_west():
            await regions.take([writing([1_300, 1_000])])
        shown = await regions.journal.journal.pending(WRITER, REGIONS)
        await regions.finish()
        regions.faults.is_over = False
        await regions.insist(
            lambda worker: worker.recovery.dispatcher.deliver_in_order(shown, ["west"])
        )
        return await regions.result()


async def sent_on(regions: BusinessRegions) -> object:
    """Outputs of many batches, of which a region refuses one: whoever goes on begins there."""
    with small_limits(wanted=True), patch.object(deliver, "BATCH_BYTES_MAX", 1_000):
        regions.faults.plan("send.west", None, CallFault.REFUSED)
        await regions.take([writing([500] * 4)])
        return await regions.end()


async def dropped_while_pending(regions: BusinessRegions) -> object:
    """Outputs that a region misses, and that a person gives up."""
    with regions.undisturbed(), regions.without_west():
        await regions.take(BILLS[:1])
    decision = OutputDecision(OutputAction.DROP, "Ada", "nobody wants them")

    async def drop(worker: Services) -> None:
        with suppress(NotBlocked):
            await worker.outputs.decide(SESSION, EVERY_QUEUE, decision)

    regions.clock.seconds += PAUSE_SECONDS_MAX
    await regions.insist(drop)
    await regions.finish()
    # What a worker sent before it died stays sent.
    types = {one.type for one in regions.bus.messages("west", "out")}
    assert types == {TOMBSTONE_TYPE}
    return [one.number for one in regions.bus.messages("west", "out")][-1]


async def made_again(regions: BusinessRegions) -> object:
    """Outputs that are not stored: a region that missed them gets what the handler makes again."""
    with regions.without_west():
        await regions.take(*([writing([n], n, "write.again")] for n in range(2)))
    return await regions.end()


async def blocked_at_a_queue(regions: BusinessRegions) -> object:
    """A queue that does not exist, until it does; a person tries one session's outputs again."""
    regions.bus.missing = {(region, "out") for region in REGIONS}
    await regions.take(BILLS[:1], [writing([1])])
    regions.bus.missing.clear()
    decision = OutputDecision(OutputAction.RETRY, "Ada", "it exists now")
    await regions.insist(partial(unblock, SESSION, OUTPUTS, decision))
    regions.clock.seconds += PAUSE_SECONDS_MAX
    return await regions.end()


async def unblock(session: str, queue: str, decision: OutputDecision, worker: Services) -> None:
    """Decide about outputs, unless a worker that died then has."""
    with suppress(NotBlocked):
        await worker.outputs.decide(session, queue, decision)


async def dropped(regions: BusinessRegions) -> object:
    """Outputs that a region missed and that are made otherwise by now; a person drops them."""
    with regions.undisturbed():
        with regions.without_west():
            await regions.take([writing([1], kind="write.again")])
        again = replace(regions.handlers.by_type["write.again"], handle=write_otherwise)
        regions.handlers = Handlers({**regions.handlers.by_type, "write.again": again})
        regions.clock.seconds += LEASE_OVER
        await regions.new_worker("west").recovery.sweep()
    regions.replace_workers("west")
    decision = OutputDecision(OutputAction.DROP, "Ada", "sent by hand")
    await regions.insist(partial(unblock, WRITER, EVERY_QUEUE, decision))
    return await regions.end()


def write_otherwise(written: Written, _: Sizes, context: Context) -> Handled[Written]:
    return letters(written, Sizes(sizes=[7]), context)


async def fenced(regions: BusinessRegions) -> object:
    """A message of a producer in whose place another numbers, without the ledger."""
    with regions.undisturbed():
        await regions.insist(partial(publish, DRAFTS[:1]))
        await regions.take([message(0, kind="account.bill", level=1)])
    return await delivered(regions, BILLS[1:2])


async def dead_lettered(regions: BusinessRegions) -> object:
    """What the broker gave up on: a message, which waits for a person, and no message of ours."""
    reason = "MaxDeliveryCountExceeded"
    ours = DeadLetter(SESSION, to_properties(BILLS[0]), BILLS[0].body, reason)
    for region in REGIONS:
        odd = DeadLetter(None, {"odd": region}, b"?", reason)
        regions.bus.dead_letters[region, "in"] = [ours, odd]

    async def sweep(worker: Services) -> None:
        await worker.dead_letters.sweep()
        region = worker.dead_letters.worker.owner.region
        if regions.bus.dead_letters[region, "in"]:
            raise Unavailable("some dead letters are left")

    for region in REGIONS:
        await regions.insist(sweep, region)
    await regions.finish()
    regions.faults.is_over = True
    # As what is rejected on arrival: one region's error queue is enough.
    reports = {report for region in REGIONS for report in regions.sent(region, "errors")}
    return reports, regions.session_result(SESSION)


async def renewed(regions: BusinessRegions) -> object:
    """A report that expired in the error queue before anybody decided about it."""
    said = dict[str, object](to_properties(BILLS[0]))
    with regions.undisturbed():
        report = await regions.workers["east"].rejecter.reject(SESSION, said, BILLS[0].body, "why")
    regions.bus.queues["east", "errors"].clear()
    expired = DeadLetter(SESSION, to_properties(report), report.body, "TTLExpiredException")
    regions.bus.dead_letters["east", "errors"] = [expired]

    async def renew(worker: Services) -> None:
        await worker.dead_letters.renew_reports()
        if regions.bus.dead_letters["east", "errors"]:
            raise Unavailable("a later run puts it back")

    await regions.insist(renew, "east")
    regions.faults.is_over = True
    return {*regions.sent("east", "errors")}


async def refused_by_a_queue(regions: BusinessRegions) -> object:
    """An output that no queue takes, in whose place a tombstone goes."""
    regions.bus.largest = {(region, "out"): 1_000 for region in REGIONS}
    return await delivered(regions, [message(0, 11, kind="account.boast")], BILLS[1:2])


async def acknowledged_later(regions: BusinessRegions) -> object:
    regions.policy = replace(IMPATIENT, acknowledge_seconds=2.0)
    regions.replace_workers("both")
    return await delivered(regions, BILLS[:1], BILLS[1:2])


async def published(regions: BusinessRegions) -> object:
    """Two operations of a producer group, by processes that may die, and what it has published."""
    for wanted in (DRAFTS[:2], DRAFTS[2:]):
        await regions.insist(partial(publish, wanted))
    ledger = await regions.insist(lambda worker: worker.producer.look(SESSION, "bank"))
    # What is not recorded as sent yet does not count.
    assert ledger is not None
    assert ledger.next <= len(DRAFTS)
    return await regions.end()


async def publish(wanted: Sequence[Draft], worker: Services, *, keep_seconds: int = 0) -> None:
    """Publish as one of a group; what no queue takes ends it, too."""
    bank = ProducerOptions("bank")
    with suppress(TooLarge):
        await worker.producer.publish(SESSION, wanted, bank, keep_seconds=keep_seconds)


async def published_by_keys(regions: BusinessRegions) -> object:
    """Ids that are kept for a time, the first one again after others."""
    for draft in (*DRAFTS, DRAFTS[0]):
        await regions.insist(partial(publish, [draft], keep_seconds=60))
    return await regions.end()


async def given_another_region(regions: BusinessRegions) -> object:
    """The list of regions: stored by a process, replaced on purpose, and given to an app."""

    async def agree(worker: Services, *names: str, records: bool = False) -> None:
        delivery = replace(worker.producer.delivery, regions=(*REGIONS, *names))
        process = Readiness(regions.journal, delivery, REGIONS if names else (), KEPT_FOR)
        while not (process.is_recorded if records else process.is_agreed):
            regions.clock.seconds += LOOK_AGAIN_SECONDS
            await process.require_regions(records=records)

    await regions.insist(agree)
    await regions.insist(lambda worker: agree(worker, "north"))
    await regions.insist(lambda worker: agree(worker, "north", records=True))
    regions.faults.is_over = True
    stored = await regions.journal.regions()
    return stored and (stored.names, stored.kept_for)


async def published_too_large(regions: BusinessRegions) -> object:
    """An operation of which no queue takes one message. Each try may spend a number for it."""
    regions.bus.largest = {(region, "in"): 1_000 for region in REGIONS}
    large = Draft("m-9", "account.add", b'{"amount":1,"note":"%s"}' % (b"x" * 1_000))
    await regions.insist(partial(publish, [DRAFTS[0], large]))
    await regions.finish()
    await regions.result()
    return {
        (m.id, m.type, region) for region in REGIONS for m in regions.bus.messages(region, "in")
    }


async def numbered_elsewhere(regions: BusinessRegions) -> object:
    """Messages with numbers of their sender's own, sent while one region is unavailable."""
    with regions.without_west():
        await regions.insist(lambda worker: worker.producer.send(BILLS[:2]))
    return await regions.end()


async def commanded(regions: BusinessRegions) -> object:
    """A command, and what it answers."""
    command = plain(0, "account.ask")

    async def ask(worker: Services) -> Reply:
        reply = await worker.consumer.ask(command)
        if isinstance(reply, Waiting):
            raise Unavailable("it has not come to its end")
        return reply

    return await regions.insist(ask), await regions.result()


async def asked(regions: BusinessRegions) -> object:
    """A key that was published and is asked, too, and one that is asked behind a fault."""
    with regions.undisturbed():
        published = await ingested("k-1", "account.ask", regions)
    await regions.insist(partial(wait_for, replace(ASKED, id="k-1")))
    await regions.take([published])
    first = await regions.insist(partial(answer_to, replace(ASKED, id="k-1")))
    await regions.take([message(0, kind="account.burn")])
    await regions.insist(partial(wait_for, ASKED))
    with regions.undisturbed():
        # Somebody removed the entry that parked it.
        await regions.take(BILLS[1:2])
        stored = regions.journal.partitions[SESSION]
        for key in [key for key, one in stored.items() if is_named(ASKED, one)]:
            del stored[key]
    await regions.insist(partial(wait_for, ASKED))
    decision = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typing error", b'{"amount":-3}')
    await regions.insist(partial(resolve, decision))
    second = await regions.insist(partial(answer_to, ASKED))
    return first, second, await regions.end()


def is_named(asked: Message, document: Mapping[str, Any]) -> bool:
    """Say whether a document is an entry of this message."""
    return any(one["id"] == asked.id for one in document.get("identities", ()))


async def wait_for(asked: Message, worker: Services) -> None:
    """Ask what cannot be answered yet."""
    assert isinstance(await worker.consumer.ask(asked), Waiting)


async def answer_to(asked: Message, worker: Services) -> object:
    """What the handler answers."""
    reply = await worker.consumer.ask(asked)
    if not isinstance(reply, Answered):
        raise Unavailable(f"it has not come to its end: {reply}")
    return reply.answer


async def watched(regions: BusinessRegions) -> object:
    """A watcher who knows nothing, one who knows all, and one who knows what is not there."""
    with regions.undisturbed():
        await regions.take(BILLS[:1], BILLS[1:2])
        await regions.finish()
        regions.replace_workers("both")
    regions.faults.is_over = False

    async def watch(after: int, worker: Services) -> object:
        changes = await worker.watch.changes(SESSION, after, 1.0)
        return [one.entry.position for one in changes.entries], changes.newest

    told = [await regions.insist(partial(watch, after)) for after in (-1, 1, 7)]
    return told, await regions.end()


async def rejected(regions: BusinessRegions) -> object:
    """What is no message of ours: one region's error queue is enough."""
    await regions.insist(lambda worker: worker.rejecter.reject(None, {"odd": 1}, b"?", "no type"))
    return {report for region in REGIONS for report in regions.sent(region, "errors")}


async def unreadable(regions: BusinessRegions) -> object:
    """A message that nobody can read, between two others: its number is used up, or waits."""
    said = dict[str, object](to_properties(BILLS[1]))

    async def reject(worker: Services) -> None:
        await worker.rejecter.reject_unreadable(SESSION, said, b"\xff", "not UTF-8")

    await regions.insist(reject)
    await regions.take(BILLS[2:3], BILLS[:1])
    await regions.insist(reject, "west", "east")
    await regions.finish()
    regions.faults.is_over = True
    # As what is rejected on arrival: one region's error queue is enough.
    reports = {report for region in REGIONS for report in regions.sent(region, "errors")}
    head = await regions.journal.head(SESSION)
    assert head is not None
    # The last message waits for a person.
    assert head.halt is not None
    return reports, head.halt.number, dict(head.parked)


async def sent_again(regions: BusinessRegions) -> object:
    """A rejected delivery that a person sends again, in whichever region can."""
    said = dict[str, object](to_properties(BILLS[0]))
    with regions.undisturbed():
        await regions.workers["east"].rejecter.reject(SESSION, said, BILLS[0].body, "no time")
    # The other region sees its copy later.
    regions.clock.seconds += DELAY_SECONDS

    async def send(worker: Services) -> None:
        (report,) = (await worker.errors.browse(SESSION, limit=1)).reports
        at = report.queued
        why = RepeatRequest(at.session, at.id, at.sequence, "Ada", "its sender is mended")
        await worker.errors.send_again(why)

    await regions.insist(send)
    return await regions.end()


async def dismissed(regions: BusinessRegions) -> object:
    """A rejected delivery that somebody began to send again, and that another one dismisses.

    A crash left another one listed that was ended before.
    """
    said = dict[str, object](to_properties(BILLS[0]))
    with regions.undisturbed():
        east = regions.workers["east"]
        report = await east.rejecter.reject(SESSION, said, BILLS[0].body, "no time")
        begun = Repetition("Ada", "its sender is mended", regions.clock.today(), digest="what")
        await regions.journal.begin_repetition(SESSION, report.id, begun)
        other = await east.rejecter.reject(SESSION, said, BILLS[1].body, "no time")
        ended = replace(begun, digest="", is_done=True)
        await regions.journal.begin_repetition(SESSION, other.id, ended)
    regions.clock.seconds += FINISH_SECONDS_MAX + 1

    async def dismiss(worker: Services) -> None:
        for found in (await worker.errors.list_open(limit=2)).reports:
            at = found.queued
            await worker.errors.dismiss(
                RepeatRequest(at.session, at.id, at.sequence, "Bob", "it was sent by hand")
            )

    await regions.insist(dismiss)
    # Said once more, it takes the report off the list, whatever was cut short.
    request = RepeatRequest(SESSION, report.id, 0, "Bob", "it was sent by hand")
    await regions.insist(lambda worker: worker.errors.dismiss(request))
    regions.faults.is_over = True
    assert await regions.journal.open_report_times(2) == []
    stored = await regions.journal.repetition(SESSION, report.id)
    return stored and (stored.who, stored.is_dismissed, stored.is_done)


async def compacted(regions: BusinessRegions) -> object:
    """Entries that are old, of which a region still needs some."""
    with small_limits(wanted=True):
        with regions.undisturbed():
            await regions.take(*([writing([n], n, "write.again")] for n in range(4)))
        with regions.without_west():
            with regions.undisturbed():
                await regions.take(*([writing([n], n, "write.again")] for n in range(4, 7)))
            regions.clock.seconds += regions.policy.retention_seconds
            await compact(regions)
        await regions.finish()
        regions.clock.seconds += regions.policy.retention_seconds
        await compact(regions)
        return await regions.result()


async def ended(regions: BusinessRegions) -> object:
    """A session that ends, what comes too late, and its removal with a ledger that lies elsewhere.

    Then its name is used again, and an old copy comes from among the dead letters.
    """
    ledgers = MemoryJournal(regions.clock, regions.faults)
    retention = regions.policy.retention_seconds
    regions.policy = replace(regions.policy, copies_seconds=retention)

    def new_worker(self: BusinessRegions, region: str) -> Services:
        services = TwoRegions.new_worker(self, region)
        services.compactor.ledgers = ledgers
        return services

    with patch.object(BusinessRegions, "new_worker", new_worker):
        regions.replace_workers("both")
        with regions.undisturbed():
            # What a crash left of another session.
            await ledgers.save_ledger("acc-9", Ledger("bank", next=1), None)
            await ledgers.end_all_ledgers("acc-9", are_apart=True)
            regions.clock.seconds += 2 * retention
            outside = Producer(ledgers, regions.workers["east"].producer.delivery)
            drafts, bank = DRAFTS[0], ProducerOptions("bank")
            (first,) = (await outside.publish(SESSION, [drafts], bank)).messages
            await regions.take([first])
            last = await ingested("last", "account.close", regions)
            # One whose numbers go on elsewhere.
            await regions.take([message(0, session="acc-8", kind="account.close")])
        came = datetime.fromtimestamp(EPOCH_SECONDS + regions.clock.seconds, UTC).isoformat()
        late = replace(plain(1), time=came)
        await regions.take([last], [last])
        await regions.take([late], [late])
        with regions.undisturbed():
            await regions.finish()
            noted = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "sent elsewhere", at=2)
            await resolve(noted, regions.workers["east"])
        for _ in range(2):
            regions.clock.seconds += retention + 1
            for region in REGIONS:
                await regions.insist(lambda worker: worker.compactor.compact(), region)
        with regions.undisturbed():
            # What a fault kept from being looked after.
            for _, region in product(range(3), REGIONS):
                regions.clock.seconds += retention + 1
                await regions.workers[region].compactor.compact()
        left = [
            store.find(partition_query(SESSION)) for store in (regions.journal.store, ledgers.store)
        ]
        assert left == [[], []]
        assert ledgers.store.find(partition_query("acc-9")) == []
        with regions.undisturbed():
            again = await ingested("again", "account.add", regions)
            await regions.take([again])
        enqueued = datetime.fromtimestamp(EPOCH_SECONDS, UTC)
        letter = DeadLetter(
            SESSION, to_properties(last), last.body, "expired", enqueued_at=enqueued
        )
        regions.bus.dead_letters["west", "in"] = [letter]

        async def sweep(worker: Services) -> None:
            await worker.dead_letters.sweep()
            if regions.bus.dead_letters["west", "in"]:
                raise Unavailable("it is left")

        await regions.insist(sweep, "west")
        await regions.finish()
    regions.faults.is_over = True
    reports = {report for region in REGIONS for report in regions.sent(region, "errors")}
    return reports, regions.session_result(SESSION), regions.session_result("acc-8")


async def archived(regions: BusinessRegions) -> object:
    """Entries that an archive has to have first, a beacon, and looks at health and overview."""
    regions.policy = replace(regions.policy, keeps_inputs=True)
    regions.replace_workers("both")
    with regions.undisturbed():
        await regions.take(*([bill] for bill in BILLS))
        await regions.finish()
    regions.clock.seconds += 2 * regions.policy.retention_seconds
    before = len(regions.journal.partitions[SESSION])
    await compact(regions)
    # No archive has any of it.
    assert len(regions.journal.partitions[SESSION]) == before

    async def light(worker: Services) -> None:
        leases = CosmosLeases(MemoryContainer(MemoryStore(regions.clock)))
        beats = Heartbeats(leases, worker.region, REGIONS, journal=worker.journal, has_sagas=False)
        await beats.report()
        if beats.lit_at is None:
            raise Unavailable("a later run tries again")

    await regions.insist(light)

    async def look(worker: Services) -> None:
        # One look answers for two seconds; what it raises is answered, too.
        worker.health.looks = None
        await worker.health.look()

    await regions.insist(look)

    async def look_around(worker: Services) -> None:
        leases = CosmosLeases(MemoryContainer(MemoryStore(regions.clock)))
        overview = Overview(worker.standstills, leases, worker.region, REGIONS, has_sagas=True)
        if await overview.look({}) is None:
            raise Unavailable("a later run looks again")

    await regions.insist(look_around)
    return await regions.result()


async def ingested(key: str, kind: str, regions: BusinessRegions) -> Message:
    """What somebody posts."""
    return await regions.workers["east"].ingest.take(SESSION, Draft(key, kind, b'{"amount":7}'))


async def compact(regions: BusinessRegions) -> None:
    """Let runs of the compaction follow each other; a failed session is left to the next."""
    for _ in range(2):
        await regions.insist(lambda worker: worker.compactor.compact())


async def saga(regions: BusinessRegions) -> object:
    """An order of one line, from its start to its end, and a look at what became of it."""
    stage = await walked(order(("p", 60)), None, SagaState.COMPLETED, regions.faults)
    taken, record = stage.taken(), stage.record("o-1")
    assert len(taken) == len(set(taken))
    history = await insist(lambda region: stage.book(region).read_history("o-1", record))
    assert [act.outcome for act in history.done.values()] == [StepOutcome.DONE] * 5
    return sorted(taken), [stage.state(session) for session in ("stock:p", "account:ada")]


WORKLOADS: Mapping[str, Work] = {
    work.__name__.replace("_", " "): work
    for work in (
        in_turn,
        gapped,
        drained_together,
        parked_twice,
        in_batches,
        without_numbers,
        late_copies,
        from_many_senders,
        with_a_large_state,
        corrected,
        decided_together,
        skipped,
        closed,
        erased,
        measured,
        effectful,
        in_steps,
        tried_again,
        left_alone,
        idempotent,
        to_an_unavailable_region,
        staged,
        staged_under_a_claim,
        delivered_meanwhile,
        sent_on,
        dropped_while_pending,
        made_again,
        blocked_at_a_queue,
        dropped,
        fenced,
        dead_lettered,
        renewed,
        refused_by_a_queue,
        acknowledged_later,
        published,
        published_by_keys,
        given_another_region,
        published_too_large,
        numbered_elsewhere,
        commanded,
        asked,
        watched,
        rejected,
        unreadable,
        sent_again,
        dismissed,
        compacted,
        archived,
        ended,
        saga,
    )
}

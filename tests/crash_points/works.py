"""Pieces of work that between them make every call that a use case can make.

Each is a coroutine over a ground on which calls go wrong, or not, and tells what is seen of it in
the end; that must not depend on what went wrong.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from shared.domain.errors import NotHalted, TooLarge
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.saga import State
from shared.testkit.strikes import Killed
from shared.usecases import coverage
from shared.usecases.resolve import Action, Decision
from shared.usecases.services import Services
from simulation.variant import small_limits
from tests.business import payment, plain
from tests.crash_points.ground import HASTY, Ground, others_have_a_turn
from tests.crash_points.strikes import Strikes
from tests.crashes import sent
from tests.letters import WRITER, writing
from tests.saga_stage import order
from tests.saga_walks import walked
from tests.world import REGIONS, message

type Work = Callable[[Strikes], Awaitable[object]]

SESSION = "acc-7"
BILLS = [message(n, kind="account.bill") for n in range(8)]
DRAFTS = [Draft(f"m-{n}", "account.add", b'{"amount":1}') for n in range(3)]


async def delivered(ground: Ground, *batches: Sequence[Message]) -> object:
    """Deliver until all is settled, and let the sweeps find what is left."""
    await ground.take(*batches)
    await ground.rest()
    return await ground.seen()


async def in_turn(strikes: Strikes) -> object:
    """Messages in their order, and a copy of the first."""
    return await delivered(Ground(strikes), BILLS[:1], BILLS[1:2], BILLS[:1])


async def gapped(strikes: Strikes) -> object:
    """A message before its turn, which is parked and drained."""
    return await delivered(Ground(strikes), BILLS[:1], BILLS[2:3], BILLS[1:2])


async def in_batches(strikes: Strikes) -> object:
    """Two batches, the first with a gap."""
    return await delivered(Ground(strikes), [*BILLS[:2], BILLS[3]], BILLS[2:5])


async def without_numbers(strikes: Strikes) -> object:
    """A message without a number, and its copy."""
    return await delivered(Ground(strikes), [plain(0)], [plain(0)])


@patch.multiple(coverage, PAGE=2, MARGIN=1)
async def late_copies(strikes: Strikes) -> object:
    """Copies of what two groups sent in turn, and another content under a used number."""
    ground = Ground(strikes)
    others = [message(n, 50 + n, kind="account.bill", group="shop") for n in range(3)]
    strikes.is_over = True
    await ground.take(*([one] for one in [others[0], *BILLS, *others[1:]]))
    strikes.is_over = False
    await ground.take([BILLS[2]], [others[0]], [replace(BILLS[3], body=b'{"amount":99}')])
    await ground.rest()
    return await ground.seen()


async def corrected(strikes: Strikes) -> object:
    """A poison that a person corrects, and the message parked behind it."""
    ground = Ground(strikes)
    await ground.take([message(0, kind="account.burn")], BILLS[1:2])

    async def correct(worker: Services) -> Entry | None:
        decision = Decision(Action.EDIT, "Ada", "a typing error", b'{"amount":-3}')
        try:
            return await worker.resolver.resolve(SESSION, decision)
        except NotHalted:
            return None

    await ground.insist(correct)
    await ground.rest()
    return await ground.seen()


async def effectful(strikes: Strikes) -> object:
    """A handler that calls the outside, and a message that comes meanwhile."""
    return await delivered(Ground(strikes), [payment(0)], BILLS[1:2])


async def left_alone(strikes: Strikes) -> object:
    """A claim whose owner died, and nobody delivers its message again: the sweep takes it over."""
    ground = Ground(strikes)
    strikes.is_over, ground.outside.before = True, die
    with suppress(Killed):
        await ground.east.consumer.consume(payment(0))
    strikes.is_over, ground.outside.before = False, others_have_a_turn
    await ground.rest()
    return await ground.seen()


async def die() -> None:
    """The process ends while it asks the outside."""
    raise Killed("payment")


async def idempotent(strikes: Strikes) -> object:
    """A handler without a journal entry, while one region is dark."""
    ground = Ground(strikes)
    ground.bus.dark = {"west"}
    await ground.take([replace(payment(0, "account.note"), number=None)])
    ground.bus.dark = set()
    await ground.rest()
    return await ground.seen()


async def to_a_dark_region(strikes: Strikes) -> object:
    """Outputs that a region misses, which the change feed shows when it is back."""
    ground = Ground(strikes)
    ground.bus.dark = {"west"}
    await ground.take(BILLS[:1], BILLS[1:2])
    ground.bus.dark = set()
    shown = ground.journal.unpaid(SESSION, REGIONS)
    await ground.insist(lambda worker: worker.rescuer.rescue(shown))
    await ground.rest()
    return await ground.seen()


async def staged(strikes: Strikes) -> object:
    """Outputs that are staged, as they do not fit an entry."""
    with small_limits(wanted=True):
        return await delivered(Ground(strikes), [writing([1_300, 1_000])], [writing([3], 1)])


async def paid_meanwhile(strikes: Strikes) -> object:
    """Staged outputs that a sweep sends to a region while a slow worker is about to."""
    with small_limits(wanted=True):
        ground = Ground(strikes)
        ground.bus.dark = {"west"}
        await ground.take([writing([1_300, 1_000])])
        ground.bus.dark = set()
        shown = ground.journal.unpaid(WRITER, REGIONS)
        await ground.rest()
        strikes.is_over = False
        await ground.insist(lambda worker: worker.rescuer.dispatcher.pay(shown, ["west"]))
        return await ground.seen()


async def made_again(strikes: Strikes) -> object:
    """Outputs that are not stored: a region that missed them gets what the handler makes again."""
    ground = Ground(strikes)
    ground.bus.dark = {"west"}
    await ground.take(*([writing([n], n, "write.again")] for n in range(2)))
    ground.bus.dark = set()
    await ground.rest()
    return await ground.seen()


async def refused_by_a_queue(strikes: Strikes) -> object:
    """An output that no queue takes, in whose place a void goes."""
    ground = Ground(strikes)
    ground.bus.largest = {(region, "out"): 1_000 for region in REGIONS}
    return await delivered(ground, [message(0, 11, kind="account.boast")], BILLS[1:2])


async def acknowledged_later(strikes: Strikes) -> object:
    """Acknowledgements that are put off."""
    ground = Ground(strikes, replace(HASTY, acknowledge_seconds=2.0))
    return await delivered(ground, BILLS[:1], BILLS[1:2])


async def published(strikes: Strikes) -> object:
    """Two operations of a producer group, by processes that may die."""
    ground = Ground(strikes)
    for wanted in (DRAFTS[:2], DRAFTS[2:]):
        await ground.insist(partial(publish, wanted))
    await ground.rest()
    return await ground.seen()


async def publish(wanted: Sequence[Draft], worker: Services) -> None:
    """Publish as one of a group; what no queue takes ends it, too."""
    with suppress(TooLarge):
        await worker.producer.publish(SESSION, wanted, ProducerOptions("bank"))


async def published_too_large(strikes: Strikes) -> object:
    """An operation of which no queue takes one message. Each try may spend a number for it."""
    ground = Ground(strikes)
    ground.bus.largest = {(region, "in"): 1_000 for region in REGIONS}
    large = Draft("m-9", "account.add", b'{"amount":1,"note":"%s"}' % (b"x" * 1_000))
    await ground.insist(partial(publish, [DRAFTS[0], large]))
    await ground.rest()
    await ground.seen()
    return {(m.id, m.type, region) for region in REGIONS for m in ground.bus.messages(region, "in")}


async def numbered_elsewhere(strikes: Strikes) -> object:
    """Messages with numbers of their sender's own, sent while one region is dark."""
    ground = Ground(strikes)
    ground.bus.dark = {"west"}
    await ground.insist(lambda worker: worker.producer.send(BILLS[:2]))
    ground.bus.dark = set()
    await ground.rest()
    return await ground.seen()


async def commanded(strikes: Strikes) -> object:
    """A command, and what it answers."""
    ground = Ground(strikes)
    command = plain(0, "account.ask")
    reply = await ground.insist(lambda worker: worker.commander.apply(command))
    return reply, await ground.seen()


async def rejected(strikes: Strikes) -> object:
    """What is no message of ours: one region's error queue is enough."""
    ground = Ground(strikes)
    await ground.insist(lambda worker: worker.rejecter.reject(None, {"odd": 1}, b"?", "no type"))
    return {report for region in REGIONS for report in sent(ground, region, "errors")}


async def compacted(strikes: Strikes) -> object:
    """Entries that are old, of which a region still needs some."""
    with small_limits(wanted=True):
        ground = Ground(strikes)
        strikes.is_over = True
        await ground.take(*([writing([n], n, "write.again")] for n in range(4)))
        ground.bus.dark = {"west"}
        await ground.take(*([writing([n], n, "write.again")] for n in range(4, 7)))
        ground.clock.seconds += ground.policy.retention_seconds
        strikes.is_over = False
        await compact(ground)
        ground.bus.dark = set()
        await ground.rest()
        ground.clock.seconds += ground.policy.retention_seconds
        await compact(ground)
        return await ground.seen()


async def compact(ground: Ground) -> None:
    """Let runs of the compaction follow each other; a failed session is left to the next."""
    for _ in range(2):
        await ground.insist(lambda worker: worker.compactor.compact())


async def saga(strikes: Strikes) -> object:
    """An order of one line, from its start to its end."""
    stage = await walked(order(("p", 60)), None, State.COMPLETED, strikes)
    taken = stage.taken()
    assert len(taken) == len(set(taken))
    return sorted(taken), [stage.state(session) for session in ("stock:p", "account:ada")]


WORKS: Mapping[str, Work] = {
    work.__name__.replace("_", " "): work
    for work in (
        in_turn,
        gapped,
        in_batches,
        without_numbers,
        late_copies,
        corrected,
        effectful,
        left_alone,
        idempotent,
        to_a_dark_region,
        staged,
        paid_meanwhile,
        made_again,
        refused_by_a_queue,
        acknowledged_later,
        published,
        published_too_large,
        numbered_elsewhere,
        commanded,
        rejected,
        compacted,
        saga,
    )
}

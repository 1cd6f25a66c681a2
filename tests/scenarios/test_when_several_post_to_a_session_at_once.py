"""HTTP ingest: what arrives for a session while an operation is under way shares the next one.

Time is virtual here: a second passes only while everything waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from proof.simulation.world import virtual_time
from shared.domain.errors import ContentConflict, Unavailable
from shared.domain.message import Message
from shared.domain.producer import Draft
from shared.engine.publish.ingest import TOGETHER_MAX, Ingest
from shared.testkit.injected_faults import CallFault
from tests.loop_clock import LoopClock
from tests.world import REGIONS, World

WRITE_SECONDS = 0.13
SESSION = "acc-7"


def draft(number: int, amount: int | None = None, text: str = "") -> Draft:
    value = number if amount is None else amount
    return Draft(f"m-{number}", "account.add", f'{{"amount":{value},"text":"{text}"}}'.encode())


TWENTY = [draft(n) for n in range(20)]


def far_away(work: Callable[[World], Awaitable[None]]) -> None:
    """Do it in virtual time, with a store each of whose writes takes 130 ms."""

    async def run() -> None:
        world = World(LoopClock())
        for name in ("save_ledger", "acknowledge"):
            setattr(world.journal, name, slow(getattr(world.journal, name)))
        await work(world)

    virtual_time.run(run())


def slow[**P, T](call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    async def wait_and_call(*args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(WRITE_SECONDS)
        return await call(*args, **kwargs)

    return wait_and_call


def begin(ingest: Ingest, drafts: Sequence[Draft]) -> list[asyncio.Task[Message]]:
    return [asyncio.create_task(ingest.take(SESSION, one)) for one in drafts]


async def results(tasks: Sequence[asyncio.Task[Message]]) -> list[Message | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


def sequences(messages: Sequence[Message | BaseException]) -> list[int]:
    return [m.number.sequence for m in messages if isinstance(m, Message) and m.number]


def sent(world: World, region: str) -> list[tuple[int, bytes]]:
    """The numbers and bodies that lie in a region's queue, each once, in order."""
    found = {(m.number.sequence, m.body) for m in world.bus.messages(region, "in") if m.number}
    return sorted(found)


def test_what_arrives_during_an_operation_shares_the_next_one() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        messages = await results(begin(ingest, TWENTY))

        assert sequences(messages) == list(range(20))
        # The first one alone, then all others.
        assert world.journal.fault_plan.calls["save_ledger"] == 2
        assert virtual_time.now() <= 2 * 2 * WRITE_SECONDS + 0.001
        bodies = [(n, one.body) for n, one in enumerate(TWENTY)]
        assert sent(world, "east") == sent(world, "west") == bodies
        assert not ingest.arrivals

    far_away(work)


def test_what_comes_alone_waits_for_nobody() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        for one in TWENTY[:5]:
            await ingest.take(SESSION, one)

        assert virtual_time.now() <= 5 * 2 * WRITE_SECONDS + 0.001
        assert world.journal.fault_plan.calls["save_ledger"] == 5

    far_away(work)


def test_more_than_an_operation_takes_go_with_the_ones_after_it_in_order() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        many = [draft(n, text="x" * 10_000) for n in range(2 * TOGETHER_MAX)]
        messages = await results(begin(ingest, many))

        assert sequences(messages) == list(range(2 * TOGETHER_MAX))
        assert world.journal.fault_plan.calls["save_ledger"] == 7
        assert sent(world, "west") == [(n, one.body) for n, one in enumerate(many)]

    far_away(work)


def test_an_id_with_other_content_is_refused_alone_and_keeps_nobody_up() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        await ingest.take(SESSION, TWENTY[3])
        conflicting = draft(3, amount=99)
        messages = await results(begin(ingest, [*TWENTY[:3], conflicting, *TWENTY[4:]]))

        assert [type(m) for m in messages if not isinstance(m, Message)] == [ContentConflict]
        assert isinstance(messages[3], ContentConflict)
        assert sequences(messages) == list(range(1, 20))
        numbered = [TWENTY[3], *TWENTY[:3], *TWENTY[4:]]
        assert sent(world, "east") == [(n, one.body) for n, one in enumerate(numbered)]

    far_away(work)


def test_the_same_id_posted_twice_at_once_has_one_number() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        messages = await results(begin(ingest, [TWENTY[0], TWENTY[1], TWENTY[0]]))

        assert sequences(messages) == [0, 1, 0]
        assert len(sent(world, "west")) == 2

    far_away(work)


def test_when_the_store_refuses_everybody_learns_it_and_a_retry_finds_the_numbers() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        # The operation of the first one, and that of all others.
        world.journal.fault_plan.plan("save_ledger", CallFault.REFUSED, CallFault.REFUSED)
        refused = await results(begin(ingest, TWENTY))
        assert [type(one) for one in refused] == [Unavailable] * 20

        again = await results(begin(ingest, TWENTY))
        assert sequences(again) == list(range(20))
        assert sent(world, "east") == [(n, one.body) for n, one in enumerate(TWENTY)]
        assert not ingest.arrivals

    far_away(work)


def test_when_the_call_that_publishes_is_cancelled_another_one_goes_on() -> None:
    async def work(world: World) -> None:
        ingest = Ingest(world.producer())
        calls = begin(ingest, TWENTY)
        # The ledger is written, and the copies are not sent or not struck off yet.
        for moment in (WRITE_SECONDS / 2, WRITE_SECONDS, WRITE_SECONDS / 4):
            await asyncio.sleep(moment)
            next(call for call in calls if not call.done()).cancel()
        messages = await results(calls)

        lost = sum(isinstance(one, asyncio.CancelledError) for one in messages)
        assert lost <= 3
        assert len(sequences(messages)) == 20 - lost
        # No number is missing, whoever was cancelled, and each has one content in both regions.
        for region in REGIONS:
            numbered = sent(world, region)
            assert [number for number, _ in numbered] == list(range(len(numbered)))
            assert len(numbered) >= 20 - lost
        assert sent(world, "east") == sent(world, "west")
        assert not ingest.arrivals

    far_away(work)

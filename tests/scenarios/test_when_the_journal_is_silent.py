"""The journal gives no answers: each call of it ends after its time, and so does whoever waits.

Time is virtual here: a second passes only while everything waits.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import time
from itertools import product
from pathlib import Path
from typing import Any, cast

import azure.functions as func
import pytest

from functions.http.ingest import accept
from functions.triggers.recover import compact_journal, sweep_dead_letters, sweep_journal
from proof.simulation.world import virtual_time
from shared.domain.errors import LockstepError, OutcomeUnknown, Unavailable
from shared.testkit.intercepted import WRITES, InterceptedJournal
from shared.testkit.memory import MemoryJournal
from tests.loop_clock import LoopClock
from tests.world import LAG_SECONDS, World, message, sweep_later

ROOT = Path(__file__).parents[2]
# The host ends a worker whose function takes longer.
LIMIT = time.fromisoformat(json.loads((ROOT / "host.json").read_text("utf-8"))["functionTimeout"])
LIMIT_SECONDS = 3600 * LIMIT.hour + 60 * LIMIT.minute + LIMIT.second
# The shipped deadline of one call to the journal.
CALL_SECONDS = 10.0
# What whoever posts waits for.
ANSWER_SECONDS_MAX = 15.0

type Work = Callable[[World], Awaitable[object]]


class SilentJournal(InterceptedJournal):
    """A journal that may fall silent: a call then takes its whole time, and has no answer.

    Where `reads_too`, nothing can be read either. What is written is applied if `applies`.
    """

    def __init__(self, world: World, *, reads_too: bool, applies: bool) -> None:
        super().__init__(world.journal)
        self.clock, self.reads_too, self.applies = world.clock, reads_too, applies
        self.is_silent = False

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        is_write = name in WRITES
        if not self.is_silent or not (is_write or self.reads_too):
            return await call()
        await self.clock.sleep(CALL_SECONDS)
        if not is_write:
            raise Unavailable("no answer to a read")
        if self.applies:
            await call()
        raise OutcomeUnknown("no answer to a write")


class SilentWorld(World):
    """A world with a silent journal, and with much that waits for help."""

    def __init__(self, *, reads_too: bool = True, applies: bool = False) -> None:
        super().__init__(LoopClock())
        self.silent = SilentJournal(self, reads_too=reads_too, applies=applies)
        twin, self.journal = self.journal, cast(MemoryJournal, self.silent)
        self.east, self.west = self.worker("east"), self.worker("west")
        self.journal = twin


async def let_others_wait(world: SilentWorld) -> None:
    """West misses outputs of many sessions, and in one session messages are parked."""
    with world.without("west"):
        for number in range(40):
            await world.east.consumer.consume(
                message(0, session=f"pending-{number}", kind="account.bill")
            )
    for sequence in range(1, 20):
        await world.east.consumer.consume(message(sequence, session="gap"))
    await world.clock.sleep(LAG_SECONDS * 2)


WORKS: dict[str, Work] = {
    "a message": lambda w: w.east.consumer.consume(message(0)),
    "a message with outputs": lambda w: w.east.consumer.consume(
        message(1, session="pending-0", kind="account.bill")
    ),
    "a message whose turn has not come": lambda w: w.east.consumer.consume(message(5)),
    "a message that others wait for": lambda w: w.west.consumer.consume(message(0, session="gap")),
    "a message that fails": lambda w: w.east.consumer.consume(message(0, kind="account.burn")),
    "the sweep": lambda w: sweep_journal(w.west.recovery),
    "dead letters": lambda w: sweep_dead_letters(w.west.dead_letters),
    "compaction": lambda w: compact_journal(w.east.compactor),
}


@pytest.mark.parametrize(
    ("work", "reads_too", "applies"), [*product(WORKS, (False, True), (False, True))]
)
def test_no_function_lasts_longer_than_the_host_lets_it(
    work: str, reads_too: bool, applies: bool
) -> None:
    async def scenario() -> None:
        world = SilentWorld(reads_too=reads_too, applies=applies)
        await let_others_wait(world)
        world.silent.is_silent = True
        began = world.clock.now()
        with suppress(LockstepError):
            await WORKS[work](world)
        assert world.clock.now() - began < LIMIT_SECONDS

    virtual_time.run(scenario())


@pytest.mark.parametrize(("reads_too", "applies"), [*product((False, True), (False, True))])
def test_what_came_meanwhile_is_done_once_and_in_order_when_it_answers_again(
    reads_too: bool, applies: bool
) -> None:
    arriving = [message(number, kind="account.bill") for number in range(3)]

    async def deliver(world: SilentWorld, region: str) -> None:
        for one in arriving:
            with suppress(LockstepError):
                await getattr(world, region).consumer.consume(one)

    async def scenario() -> None:
        world = SilentWorld(reads_too=reads_too, applies=applies)
        world.silent.is_silent = True
        for region in ("east", "west"):
            await deliver(world, region)
        world.silent.is_silent = False
        for region in ("west", "east"):
            await deliver(world, region)
        await sweep_later(world)

        assert world.amounts() == [1, 2, 3]
        sent = [dict.fromkeys(world.outputs(region)) for region in ("east", "west")]
        assert [*sent[0]] == [*sent[1]]
        assert [json.loads(body)["total"] for _, body in sent[0]] == [1, 3, 6]

    virtual_time.run(scenario())


@pytest.mark.parametrize(("reads_too", "applies"), [*product((False, True), (False, True))])
def test_whoever_posts_is_answered_and_may_post_the_same_again(
    reads_too: bool, applies: bool
) -> None:
    async def scenario() -> None:
        world = SilentWorld(reads_too=reads_too, applies=applies)
        await world.east.readiness.require_regions()
        world.silent.is_silent = True
        began = world.clock.now()
        answers = await asyncio.gather(*(post(world, number) for number in range(3)))

        assert world.clock.now() - began < ANSWER_SECONDS_MAX
        assert [answer.status_code for answer in answers] == [503] * 3
        world.silent.is_silent = False
        for number in range(3):
            assert (await post(world, number)).status_code == 202
        for region in ("east", "west"):
            queued = {m.id: m.body for m in world.bus.messages(region, "in")}
            assert queued == {f"key-{n}": body_of(n) for n in range(3)}

    virtual_time.run(scenario())


def body_of(number: int) -> bytes:
    return json.dumps({"amount": number}).encode()


async def post(world: SilentWorld, number: int) -> func.HttpResponse:
    """Post a message to a session."""
    request = func.HttpRequest(
        "POST",
        "/api/sessions/acc-7/messages",
        headers={"Idempotency-Key": f"key-{number}"},
        params={"type": "account.add"},
        route_params={"session": "acc-7"},
        body=body_of(number),
    )
    return await accept(world.east, request)

"""What a message goes through in production, each as one way to deliver the same messages."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product

from shared.domain.message import Message
from shared.testkit.given import described
from shared.testkit.stage import REGIONS, Stage
from shared.testkit.strikes import How, Strike

EAST, WEST = REGIONS
BATCH = 10

type Deliver = Callable[[Stage, Sequence[Message]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A way of delivering messages, and how people would call it."""

    name: str
    deliver: Deliver
    keeps_order: bool = True


async def in_turn(stage: Stage, messages: Sequence[Message], region: str = EAST) -> None:
    """Each message once, in order, to one region."""
    for message in messages:
        await stage.settle(region, message)


async def twice(stage: Stage, messages: Sequence[Message]) -> None:
    """Each message twice in a row."""
    for message in messages:
        await stage.settle(EAST, message)
        await stage.settle(EAST, message)


async def in_both(stage: Stage, messages: Sequence[Message]) -> None:
    """Each message to both regions at the same time."""
    for message in messages:
        await asyncio.gather(stage.settle(EAST, message), stage.settle(WEST, message))


async def late_copies(stage: Stage, messages: Sequence[Message]) -> None:
    """All messages, and copies of all of them to workers that remember nothing."""
    await in_turn(stage, messages)
    for region in REGIONS:
        stage.workers[region] = stage.worker(region)
        for message in reversed(messages):
            await stage.settle(region, message)


async def backwards(stage: Stage, messages: Sequence[Message]) -> None:
    """The last message first."""
    for message in reversed(messages):
        await stage.settle(EAST, message)


async def in_batches(stage: Stage, messages: Sequence[Message]) -> None:
    """Neighbours of one session together."""
    for _, group in groupby(messages, lambda message: message.session):
        together = list(group)
        for start in range(0, len(together), BATCH):
            await stage.settle(EAST, *together[start : start + BATCH])


async def one_dark(stage: Stage, messages: Sequence[Message]) -> None:
    """No output reaches the west until it is back."""
    stage.bus.unavailable = {WEST}
    await in_turn(stage, messages)
    stage.bus.unavailable = set()


async def shuffled(seed: int, stage: Stage, messages: Sequence[Message]) -> None:
    """All messages and their copies in any order, to any region, some to a new worker."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to surprise
    deliveries = list(product(messages, REGIONS))
    chance.shuffle(deliveries)
    for message, region in deliveries:
        if chance.random() < 0.2:
            stage.workers[region] = stage.worker(region)
        await stage.settle(region, message)


DISTURBANCES = (
    Disturbance("when only the other region takes them", partial(in_turn, region=WEST)),
    Disturbance("when each message comes twice", twice),
    Disturbance("when both regions take each message at once", in_both),
    Disturbance("when copies of all messages come late", late_copies),
    Disturbance("when they come backwards", backwards, keeps_order=False),
    Disturbance("when they come in batches", in_batches),
    Disturbance("when one region is dark for a while", one_dark),
    *(
        Disturbance(f"in shuffled order {n}", partial(shuffled, n), keeps_order=False)
        for n in range(3)
    ),
)


def fitting(messages: Sequence[Message]) -> list[Disturbance]:
    """The disturbances that must change nothing: un-numbered messages have no order but theirs."""
    is_numbered = all(message.number for message in messages)
    return [each for each in DISTURBANCES if is_numbered or each.keeps_order]


def strikes(calls: int, runs_max: int) -> Iterator[Strike]:
    """Every call going wrong in every way; evenly chosen ones where that is too many."""
    every = list(product(range(calls), How))
    step = max(1, -(-len(every) // runs_max))
    for at, how in every[::step]:
        yield Strike(at=at, how=how)


@dataclass
class Struck:
    """Deliver in turn, and know at which message the strike fell."""

    during: str = "the sweep"

    async def deliver(self, stage: Stage, messages: Sequence[Message]) -> None:
        """Each message until it is settled."""
        for message in messages:
            before = len(stage.strike.made)
            await stage.settle(EAST, message)
            if stage.strike.at in range(before, len(stage.strike.made)):
                self.during = described(message)

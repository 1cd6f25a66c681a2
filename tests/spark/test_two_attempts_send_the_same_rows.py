"""A zombie or speculative copy of a task sends beside the right one, and each may die anywhere."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from pyspark.sql import Row

from shared.domain.message import Message, derive_id
from spark.send.rows import SendCounts, SendPolicy, send_rows
from tests.crashes import rest
from tests.world import REGIONS, World

ACCOUNTS = {f"acc-{n}": [10 * n + k for k in range(1, 6)] for n in range(3)}


def rows() -> list[Row]:
    """Every amount of every account, the accounts taking turns."""
    return [
        Row(
            session=account,
            group="bank",
            sequence=number,
            type="account.add",
            body=f'{{"amount":{amounts[number]}}}',
            id=derive_id("bank", account, str(number)),
            time=None,
        )
        for number in range(5)
        for account, amounts in ACCOUNTS.items()
    ]


def unheard(_: int) -> None:
    """Nobody listens."""


async def attempt(world: World, chance: random.Random, dies_after: int | None) -> None:
    """One attempt of the task, in a process of its own; it ends in the middle of a send."""
    producer = world.producer()
    left = dies_after

    async def send(messages: Sequence[Message]) -> SendCounts:
        nonlocal left
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if left is not None:
            left -= 1
            if left < 0:
                await producer.delivery.bus.send("east", "in", messages[:1])
                raise ConnectionResetError("the executor was lost")
        published = await producer.send(messages)
        return SendCounts(published.sent, published.pending)

    await send_rows(rows(), send, SendPolicy(rows_max=4), unheard)


async def consumed(world: World, chance: random.Random) -> None:
    """Both regions take what is in their queues, a session's messages in the queue's order."""
    queues: dict[tuple[str, str], list[Message]] = {}
    for region in REGIONS:
        for message in world.bus.messages(region, "in"):
            queues.setdefault((region, message.session), []).append(message)
    while queues:
        place = chance.choice(sorted(queues))
        worker = world.east if place[0] == "east" else world.west
        await worker.consumer.consume(queues[place].pop(0))
        if not queues[place]:
            del queues[place]


@pytest.mark.parametrize("seed", range(12))
async def test_effects_equal_the_source(seed: int) -> None:
    chance = random.Random(seed)
    world = World()

    attempts = (
        attempt(world, chance, dies_after=chance.randrange(9)),
        attempt(world, chance, dies_after=chance.randrange(9)),
        attempt(world, chance, dies_after=None),
    )
    ends = await asyncio.gather(*attempts, return_exceptions=True)
    await consumed(world, chance)
    await rest(world)

    assert [type(end) for end in ends] == [ConnectionResetError, ConnectionResetError, type(None)]
    assert {account: world.amounts(account) for account in ACCOUNTS} == ACCOUNTS

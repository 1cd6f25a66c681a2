"""SIGKILL at random instants, ten rounds, in both regions, while messages are under way."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from shared.domain.message import Message
from tests.e2e.stack import Stack, assert_once_and_in_order, flights, running_stack, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROUNDS = 10
SEED = 2013
WAVE = 5
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path, **DELAY) as stack:
        yield stack


async def test_nothing_is_lost_doubled_or_reordered(stack: Stack) -> None:
    sent = flights(sessions=40, each=25)
    chance = random.Random(SEED)

    sending = asyncio.create_task(send_in_waves(stack, sent))
    kills = [await asyncio.to_thread(kill_at_work, stack, chance) for _ in range(ROUNDS)]
    await sending
    await asyncio.to_thread(until, lambda: stack.left_in_queues() == 0, seconds=90, what="draining")

    assert sum(kills) >= ROUNDS // 2, "most rounds found a queue at work"
    assert_once_and_in_order(stack.entries(), sent)


async def send_in_waves(stack: Stack, sent: Mapping[str, list[Message]]) -> None:
    """Send a few messages to every session, again and again, while the kills go on."""
    for first in range(0, 25, WAVE):
        await stack.send({s: own[first : first + WAVE] for s, own in sent.items()}, **DELAY)
        await asyncio.sleep(3)


def kill_at_work(stack: Stack, chance: random.Random) -> bool:
    """Let a region settle a few messages, kill its host and start another one.

    The answer is whether messages were waiting or locked when the kill struck.
    """
    region = chance.choice(("east", "west"))
    goal = completed(stack, region) + chance.randrange(1, 40)
    until(
        lambda: completed(stack, region) >= goal or stack.left_in_queues() == 0,
        seconds=30,
        what=f"work in the {region}",
    )
    stack.cloud.hosts.act(region, "kill")
    was_busy = stack.left_in_queues() > 0
    stack.cloud.hosts.act(region, "start")
    return was_busy


def completed(stack: Stack, region: str) -> float:
    """How many messages a region has settled."""
    rows = stack.counted().get(f"servicebus.{region}", {}).get("complete", {})
    return sum(row["count"] for row in rows.values())

"""SIGKILL at random instants, ten rounds, in both regions, while messages are under way."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, assert_once_and_in_order, flights, running_stack
from tests.patience import until

pytestmark = pytest.mark.e2e

ROUNDS = 10
SEED = 2013
WAVE = 5
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path, **DELAY) as stack:
        yield stack


async def test_nothing_is_lost_doubled_or_reordered(stack: Stack) -> None:
    sent = flights(sessions=40, each=WAVE * ROUNDS)
    chance = random.Random(SEED)

    kills = []
    for first in range(0, WAVE * ROUNDS, WAVE):
        wave = {session: own[first : first + WAVE] for session, own in sent.items()}
        sending = asyncio.create_task(stack.send(wave, **DELAY))
        kills.append(await asyncio.to_thread(kill_at_work, stack, chance))
        await sending
    await asyncio.to_thread(
        until, lambda: stack.left_in_queues() == 0, seconds=240, what="draining"
    )

    assert sum(kills) >= ROUNDS // 3, "kills struck regions at work"
    assert_once_and_in_order(stack.entries(), sent)


def kill_at_work(stack: Stack, chance: random.Random) -> bool:
    """Let a region settle a few messages of the wave, kill its host and start another one.

    The answer is whether messages were waiting or locked in the region when the kill struck.
    """
    region = chance.choice(("east", "west"))
    goal = stack.completed(region) + chance.randrange(1, 40)
    until(lambda: stack.completed(region) >= goal, seconds=120, what=f"work in the {region}")
    stack.cloud.control.act(region, "kill")
    depth = stack.cloud.control.read_depths()[region]["lockstep"]
    stack.cloud.control.act(region, "start")
    return depth["active"] + depth["locked"] > 0

"""SIGKILL at random instants, in several rounds, while messages are under way in both regions."""

import asyncio
import random

import pytest

from local.testing.patience import until
from shared.domain.message import Message
from tests.e2e.stack import Stack, assert_once_and_in_order, flights
from tests.sizes import IS_PROOF

pytestmark = pytest.mark.e2e

# So many rounds at least, and further ones until as many kills have struck a region at work.
ROUNDS, KILLS_MIN, SESSIONS = (10, 3, 40) if IS_PROOF else (2, 1, 10)
ROUNDS_MAX = 20
SEED = 2013
WAVE = 5
SETTINGS = DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}


async def test_nothing_is_lost_doubled_or_reordered(stack: Stack) -> None:
    chance = random.Random(SEED)
    sent: dict[str, list[Message]] = {}
    kills: list[bool] = []
    while len(kills) < ROUNDS or (sum(kills) < KILLS_MIN and len(kills) < ROUNDS_MAX):
        done = WAVE * len(kills)
        sent = flights(SESSIONS, done + WAVE)
        wave = {session: own[done:] for session, own in sent.items()}
        sending = asyncio.create_task(stack.send(wave, **DELAY))
        kills.append(await asyncio.to_thread(kill_at_work, stack, chance))
        await sending
    await asyncio.to_thread(
        until, lambda: stack.left_in_queues() == 0, seconds=240, what="draining"
    )

    assert sum(kills) >= KILLS_MIN, "kills hit regions at work"
    assert_once_and_in_order(stack.entries(), sent)


def kill_at_work(stack: Stack, chance: random.Random) -> bool:
    """Let a region settle a few messages of the wave, kill its host and start another one.

    The answer is whether messages were waiting or locked in the region when the kill struck.
    """
    region = chance.choice(("east", "west"))
    goal = stack.completed(region) + chance.randrange(1, SESSIONS)
    until(lambda: stack.completed(region) >= goal, what=f"work in the {region}")
    stack.cloud.control.act(region, "kill")
    depth = stack.cloud.control.read_depths()[region]["lockstep"]
    stack.cloud.control.act(region, "start")
    return depth["active"] + depth["locked"] > 0

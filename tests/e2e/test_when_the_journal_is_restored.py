"""The restore drill of docs/deploy.md on one machine: the journal of earlier, the queues of now."""

import shutil
from pathlib import Path

import pytest

from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from shared.domain.message import Message
from tests.e2e.stack import REGIONS, Stack, effects, expect_effects, flights

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SESSIONS, BEFORE, SETTLED, SENT = 3, 4, 7, 8


def first(each: int) -> dict[str, list[Message]]:
    return {session: own[:each] for session, own in flights(SESSIONS, SENT).items()}


def processed(stack: Stack) -> dict[str, list[tuple[str, str]]]:
    return {session: effects(own) for session, own in stack.entries().items()}


async def send_and_settle(stack: Stack, each: int) -> None:
    """Send the first messages of every session, whether or not they were sent before."""
    await stack.send(first(each))
    until(
        lambda: processed(stack) == expect_effects(first(each)) and stack.left_in_queues() == 0,
        what=f"the processing of {each} messages of each session",
    )


def waiting(stack: Stack) -> set[str]:
    found = stack.search("SELECT c.session FROM c WHERE c.waiting = true")
    return {document["session"] for document in found}


async def test_a_restored_journal_has_what_was_committed_and_takes_the_rest_again(
    tmp_path: Path,
) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    settings = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "0", "LOCKSTEP_GAP_WAIT_SECONDS": "1"}
    kept = ("--data", str(data))
    with running_cloud(*kept, logs=tmp_path, settings=settings) as cloud:
        await send_and_settle(Stack(cloud), BEFORE)
    shutil.copytree(data, copy)
    with running_cloud(*kept, logs=tmp_path, settings=settings) as cloud:
        await send_and_settle(Stack(cloud), SETTLED)
        for region in REGIONS:
            cloud.control.act(region, "kill")
        # The last ones wait in the queues, which no restore takes back.
        last = {session: own[SETTLED:] for session, own in flights(SESSIONS, SENT).items()}
        await Stack(cloud).send(last)
    shutil.copy(copy / "cosmos.sqlite", data / "cosmos.sqlite")

    with running_cloud(*kept, logs=tmp_path, settings=settings) as cloud:
        restored = Stack(cloud)
        # What was committed before the copy is there. What was in a queue shows what is missing: it
        # waits behind the messages that the journal forgot and that are in no queue any more.
        sessions = set(flights(SESSIONS, SENT))
        until(lambda: waiting(restored) == sessions, what="the gap of each session")
        assert processed(restored) == expect_effects(first(BEFORE))

        # The whole source again: the first ones are copies, the others are processed, once.
        await send_and_settle(restored, SENT)
        assert waiting(restored) == set()

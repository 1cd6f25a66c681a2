"""What a message costs when nothing fails, counted exactly by the stores themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, assert_once_and_in_order, flights, running_stack, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SESSIONS = 20
EACH = 10
MESSAGES = SESSIONS * EACH


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path) as stack:
        yield stack


async def test_one_strong_write_one_read_at_most_and_no_abandon(stack: Stack) -> None:
    sent = flights(SESSIONS, EACH)

    await stack.send(sent, LOCKSTEP_SECONDARY_DELAY_SECONDS="8")
    until(lambda: stack.left_in_queues() == 0, seconds=90, what="draining both queues")

    print(stack.counted())

"""A deep session is paid for by the fold, and a fold is what its calls gathered."""

from functools import partial

import pytest

from local.testing.patience import until
from tests.e2e.stack import REGIONS, Stack, effects, expect_effects, flights

pytestmark = pytest.mark.e2e

SESSIONS = 3
EACH = 60
MESSAGES = SESSIONS * EACH
# A fold holds what came during the write before it, so folds differ in size.
WRITES_MAX = MESSAGES // 3
SETTINGS = {"LOCKSTEP_SWEEP_SCHEDULE": "0 0 0 1 1 *"}


@pytest.mark.proof
async def test_calls_share_writes_and_every_message_is_applied_once_in_order(
    stack: Stack,
) -> None:
    sent = flights(SESSIONS, EACH)

    # So that the whole backlog is there, however slowly it was sent.
    for region in REGIONS:
        stack.cloud.control.act(region, "stop")
    await stack.send(sent, LOCKSTEP_SECONDARY_DELAY_SECONDS="1")
    for region in REGIONS:
        stack.cloud.control.act(region, "start")
        until(partial(is_done, stack, region), what=f"the work of {region}")

    assert sum(stack.ended("cosmos.journal", "batch").values()) <= WRITES_MAX
    entries = stack.entries()
    assert {s: effects(found) for s, found in entries.items()} == expect_effects(sent)
    for found in entries.values():
        assert found[-1]["state"]["events"] == EACH
        assert [cursor["next"] for cursor in found[-1]["cursors"].values()] == [EACH]


def is_done(stack: Stack, region: str) -> bool:
    return stack.completed(region) == MESSAGES

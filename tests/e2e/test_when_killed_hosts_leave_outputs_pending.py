"""Hosts are killed while outputs are pending; their leases and timers' locks live on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from shared.domain.message import Message
from tests.e2e.stack import REGIONS, Stack, assert_every_shot_is_told, effects, expect_effects, shot

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

# With the platform's own periods the dead hosts' leases and locks alone last for a minute.
RECOVERY_SECONDS_MAX = 45.0
GAMES, SHOTS = ("g0", "g1", "g2"), 4


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    settings = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "0"}
    # What is kept outlives the hosts: the locks of the timers, too.
    with running_cloud("--data", str(tmp_path / "data"), logs=tmp_path, settings=settings) as cloud:
        yield Stack(cloud)


async def send_shots(stack: Stack) -> dict[str, list[Message]]:
    """Send while no host runs, so that all are processed at once when the hosts start."""
    for region in REGIONS:
        stack.cloud.control.act(region, "kill")
    shots = {game: [shot(game, n, n) for n in range(SHOTS)] for game in GAMES}
    await stack.send(shots, LOCKSTEP_SECONDARY_DELAY_SECONDS="0")
    return shots


@pytest.mark.parametrize("killed", [("east",), REGIONS], ids="-".join)
async def test_the_next_hosts_send_them_before_a_minute_is_over(
    stack: Stack, killed: tuple[str, ...]
) -> None:
    control = stack.cloud.control
    shots = await send_shots(stack)
    refusal = {"operation": "send", "action": "status", "status": 503}
    faults = [control.arm({"component": f"servicebus.{name}", **refusal}) for name in REGIONS]
    for region in REGIONS:
        control.act(region, "start")
    until(lambda: stack.left_in_queues() == 0, what="processing without sending")
    assert stack.has_pending()
    assert stack.entries().keys() == set(GAMES)

    for region in killed:
        control.act(region, "kill")
    for fault in faults:
        control.clear(fault)
    for region in killed:
        control.act(region, "start")
    until(
        lambda: not stack.has_pending() and len(stack.entries()) == 2 * len(GAMES),
        seconds=RECOVERY_SECONDS_MAX,
        what="recovery",
    )

    until(lambda: stack.left_in_queues() == 0, what="the scoreboards")
    entries = stack.entries()
    assert {game: effects(entries[game]) for game in GAMES} == expect_effects(shots)
    assert_every_shot_is_told(entries, shots)

"""A host for each function group, as Flex Consumption runs them; idle ones are scaled to zero."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from local.hosts import HostProcess, HostSpec
from local.testing.patience import until
from proof.testbed.cloud import ROOT
from shared.domain.message import Message
from tests.e2e.stack import (
    Stack,
    assert_every_shot_is_told,
    effects,
    expect_effects,
    running_stack,
    shot,
)
from tests.e2e.test_sagas_through_a_regions_death import LINES, ended, is_waiting, shop

__all__ = ["shop"]
pytestmark = [pytest.mark.e2e, pytest.mark.proof]

TARGET = "FUNCTIONS_TARGET_GROUP"
GROUPS = (
    "durable",
    *(f"function:{name}" for name in ("receive", "recover", "begin_sagas", "sweep")),
)
GAMES, SHOTS = ("g0", "g1", "g2"), 4


def count_told(stack: Stack) -> int:
    """How many shots the scoreboards were told of."""
    entries = stack.entries()
    return sum(len(effects(entries.get(f"{game}/score", []))) for game in GAMES)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Regions whose own hosts serve HTTP alone."""
    settings = {TARGET: "http", "LOCKSTEP_SECONDARY_DELAY_SECONDS": "0"}
    with running_stack(tmp_path, **settings) as stack:
        yield stack


@pytest.fixture
def groups(stack: Stack, tmp_path: Path) -> Iterator[dict[str, dict[str, HostProcess]]]:
    """The hosts of the other groups, by region and group."""
    with ExitStack() as stopped:
        found: dict[str, dict[str, HostProcess]] = {}
        for region, one in stack.cloud.control.read_hosts().items():
            settings = psutil.Process(one["pid"]).environ()
            for group in GROUPS:
                log = tmp_path / f"{region}-{group.replace(':', '-')}.log"
                host = HostProcess(HostSpec(region, ROOT, settings | {TARGET: group}, log))
                stopped.callback(host.kill)
                found.setdefault(region, {})[group] = host
        launch([host for own in found.values() for host in own.values()])
        yield found


def launch(hosts: Sequence[HostProcess]) -> None:
    """Start hosts side by side."""
    for host in hosts:
        host.launch()
    for host in hosts:
        host.await_ready()


def shots(game: str, first: int) -> list[Message]:
    return [shot(game, n, n) for n in range(first, first + SHOTS)]


async def test_all_work_goes_on_while_idle_groups_are_stopped_and_receivers_die(
    groups: dict[str, dict[str, HostProcess]], shop: Stack
) -> None:
    stack = shop
    fired = {game: shots(game, 0) for game in GAMES}
    await stack.send(fired)
    assert stack.start_saga("east", "waits", lines=LINES, approval_seconds=1200)[0] == 202
    until(lambda: is_waiting(stack, "west", "waits"), seconds=120, what="the saga's wait")

    # What has nothing to do is scaled to zero; a saga that begins by HTTP needs neither.
    for own in groups.values():
        for group in ("function:recover", "function:begin_sagas"):
            own[group].stop()
    assert stack.start_saga("west", "plain", lines=LINES)[0] == 202
    assert ended(stack, "east", "plain")["state"] == "completed"

    # The receivers die with outputs owed. The sweeps, groups of their own, send them.
    receivers = [own["function:receive"] for own in groups.values()]
    for host in receivers:
        host.kill()
    more = {game: shots(game, SHOTS) for game in GAMES}
    await stack.send(more)
    refusal = {"operation": "send", "action": "status", "status": 503}
    control = stack.cloud.control
    faults = [control.arm({"component": f"servicebus.{region}", **refusal}) for region in groups]
    launch(receivers)
    until(stack.has_pending, seconds=120, what="processing without sending")
    for host in receivers:
        host.kill()
    for fault in faults:
        control.clear(fault)
    until(lambda: not stack.has_pending(), seconds=60, what="what is owed")
    launch(receivers[:1])

    # A saga under way walks on when its group's host has been killed and is there again.
    groups["east"]["durable"].kill()
    assert stack.ask("east", "sagas/waits/events/approved", "POST")[0] == 202
    launch([groups["east"]["durable"]])
    assert ended(stack, "west", "waits")["state"] == "completed"

    sent = {game: fired[game] + more[game] for game in GAMES}
    expected = expect_effects(sent)
    until(
        lambda: {game: effects(stack.entries()[game]) for game in GAMES} == expected,
        seconds=120,
        what="every effect, in order",
    )
    until(
        lambda: not stack.has_pending() and count_told(stack) == 2 * SHOTS * len(GAMES),
        seconds=120,
        what="the scoreboards",
    )
    entries = stack.entries()
    assert_every_shot_is_told(entries, sent)

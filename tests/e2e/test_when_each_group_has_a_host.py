"""A host for each function group, as Flex Consumption runs them; idle ones are scaled to zero."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
from tests.infra.test_hooks import Azure, azure, hook, run

__all__ = ["azure", "shop"]
pytestmark = [pytest.mark.e2e, pytest.mark.proof]

TARGET = "FUNCTIONS_TARGET_GROUP"
GROUPS = (
    "durable",
    *(f"function:{name}" for name in ("receive", "recover", "begin_sagas", "sweep")),
)
FEEDS = ("function:recover", "function:begin_sagas")
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
        for group in FEEDS:
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


def test_when_an_idle_app_is_deployed_the_check_waits_for_feeds_and_for_a_saga_that_runs(
    groups: dict[str, dict[str, HostProcess]],
    stack: Stack,
    azure: Azure,
    tmp_path: Path,
) -> None:
    own = groups["east"]

    def beacons() -> list[str]:
        found = stack.search("SELECT * FROM c WHERE c.kind = 'beacon'")
        return [one["_etag"] for one in found if one["id"] == "beacon-east"]

    def status() -> dict[str, Any]:
        return dict(stack.ask("east", "status")[1]["heartbeats"])

    azure.health = lambda: stack.ask("east", "health")[1]
    feeds = [group.partition(":")[2] for group in FEEDS]
    names = [*feeds, "sagas"]
    until(lambda: all(status()[name]["secondsAgo"] is not None for name in names), what="feeds")
    for group in (*FEEDS, "durable"):
        own[group].stop()

    # Nothing is wrong with them, and yet nobody knows whether those of a new version work.
    assert [status()[name]["silent"] for name in names] == [False, False, False]
    refused, said = run(hook("postdeploy", "east"), azure, tmp_path, LOCKSTEP_CHECK_SECONDS="2")
    assert refused == 1
    assert "a feed or a timer was not heard since then" in said

    before = beacons()
    with ThreadPoolExecutor(1) as checking:
        seconds = {"LOCKSTEP_CHECK_SECONDS": "100"}
        checked = checking.submit(run, hook("postdeploy", "east"), azure, tmp_path, **seconds)
        own["function:sweep"].kill()
        launch([own["function:sweep"]])
        until(lambda: beacons() != before, seconds=120, what="the beacon of the new sweep")
        # The platform starts them for what they have not seen.
        launch([own[group] for group in FEEDS])
        until(lambda: all(status()[name]["secondsAgo"] < 10 for name in feeds), what="the feeds")
        # Nothing runs the saga that the beacon has started.
        assert not checked.done()
        refused, _ = run(hook("postdeploy", "east"), azure, tmp_path, LOCKSTEP_CHECK_SECONDS="2")
        assert refused == 1
        launch([own["durable"]])
        passed, said = checked.result()
    assert (passed, said) == (0, "func-east works.\n")

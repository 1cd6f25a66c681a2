"""What is slow is waited for and what stands still is not; only what is broken is called so."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proof.demo import run
from proof.demo.checker import HeldMessage, StoredJournal
from proof.demo.display import PlainDisplay
from proof.demo.options import DemoOptions
from proof.demo.result import DemoResult, ExitStatus
from proof.demo.run import DemoRun, run_and_check
from proof.demo.waiting import STALLED_SECONDS, JournalWork
from proof.testbed.flights import ExpectedMessages
from proof.testbed.sampling import CloudSample, RegionSample, SampleTimeline
from tests.unit.proof.demo.histories import effect, held, message, sound_history

SOUND = sound_history()
UP = RegionSample(host_up=True, namespace_up=True, waiting=0, scheduled=0, dead=0, settled=7)
OUT_OF_ORDER = [effect(message("N24211", n), position=at) for at, n in enumerate((0, 2, 1))]
# Rarely enough that no limit but the one on standing still can have been kept.
SLOW = STALLED_SECONDS - 10


@dataclass
class World:
    """Two regions in virtual time: what is in queues and journal is a function of it."""

    pending: Callable[[float], int] = lambda _: 0
    settled: Callable[[float], int] = lambda _: 7
    fed_at: float = 0.0
    queued: tuple[HeldMessage, ...] = ()
    entries: tuple[Any, ...] = SOUND.entries
    now: float = 0.0
    read: int = 0
    child: Any = field(default_factory=nullcontext)
    queue: str = "lockstep"
    regions: tuple[str, ...] = ("east", "west")

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def control(self) -> Any:
        contents = {"east": [{"session": m.session, "id": m.id} for m in self.queued], "west": []}
        return SimpleNamespace(
            read_counters=dict, read_queue=lambda region, _queue: contents[region]
        )

    def sample(self, *_: object) -> CloudSample:
        east = replace(UP, waiting=len(self.queued), settled=self.settled(self.now))
        return CloudSample(self.now, {"east": east, "west": UP})

    def work(self, _cloud: object) -> JournalWork:
        return JournalWork(self.pending(self.now), 0)

    def journal(self, _cloud: object) -> StoredJournal:
        names = tuple(f"N14228/owed-{n}" for n in range(self.pending(self.now)))
        return StoredJournal(self.entries, pending=names)

    def is_finished(self) -> bool:
        return self.now >= self.fed_at

    def read_news(self) -> Iterator[str]:
        return iter(())

    def count_rejected(self) -> int | None:
        return 0 if self.is_finished() else None


def result_of(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DemoResult:
    """Run the demo in a world, without kill."""
    cloud = cast(Any, world)
    cloud.child = SimpleNamespace(is_running=True)
    feed = SimpleNamespace(
        child=nullcontext(),
        read=0,
        is_finished=world.is_finished,
        read_news=world.read_news,
        count_rejected=world.count_rejected,
    )
    for name, fake in {
        "take_sample": world.sample,
        "read_work": world.work,
        "read_journal": world.journal,
        "start_feed": lambda *_: feed,
        "DemoRun": partial(DemoRun, clock=world.clock, sleep=world.sleep),
    }.items():
        monkeypatch.setattr(run, name, fake)
    options = DemoOptions(days=1, source=None, data=tmp_path, kills=False)
    expected = ExpectedMessages(SOUND.sent, rejected=0)
    return run_and_check(cloud, options, expected, SampleTimeline(0.0), PlainDisplay())


def falling_from(most: int, *, until: int = 0) -> Callable[[float], int]:
    """What is pending: one less each time, as rarely as anything may move."""
    return lambda now: max(until, most - int(now // SLOW))


@pytest.mark.parametrize(
    "world",
    [
        World(pending=falling_from(20)),
        World(settled=lambda now: int(now // SLOW), fed_at=20 * SLOW),
    ],
)
def test_what_is_pending_or_in_a_queue_is_waited_for_however_slowly_it_falls(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = result_of(world, monkeypatch, tmp_path)

    assert world.now >= 20 * SLOW
    assert (result.stopped, result.exit_status()) == ("", ExitStatus.HELD)


def test_pending_copies_that_stand_still_are_not_finished_and_break_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(pending=falling_from(9, until=3))

    result = result_of(world, monkeypatch, tmp_path)

    told = [event.text for event in result.timeline.events if "to be delivered;" in event.text]
    assert len(told) == len(set(told)) == 7
    stood_still = world.now - 6 * SLOW
    assert STALLED_SECONDS < stood_still < STALLED_SECONDS + 10
    assert result.problems() == ()
    assert result.exit_status() is ExitStatus.NOT_FINISHED
    assert f"nothing moved for {STALLED_SECONDS:.0f} s" in result.unfinished()[0]
    assert "pending, not delivered: 3" in result.unfinished()[1]


@pytest.mark.parametrize(
    ("world", "left"),
    [
        (
            World(queued=(held("N24211", 2),), entries=SOUND.entries[:-1]),
            "left in queues: 1 (N24211 in east)",
        ),
        (World(fed_at=1e9, entries=SOUND.entries[:-2]), "not sent: 2"),
    ],
)
def test_what_stands_still_in_a_queue_or_in_the_feed_is_not_finished(
    world: World, left: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = result_of(world, monkeypatch, tmp_path)

    assert result.problems() == ()
    assert result.exit_status() is ExitStatus.NOT_FINISHED
    assert result.unfinished()[1].startswith(left)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (SOUND.entries[:-1], "lost: 1"),
        ((*SOUND.entries, replace(SOUND.entries[-1], position=3, events=4)), "duplicated: 1"),
        ((*SOUND.entries[:-3], *OUT_OF_ORDER), "out of order: 1"),
    ],
)
def test_a_broken_promise_is_broken_where_the_run_did_not_finish(
    entries: tuple[Any, ...],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    world = World(pending=lambda _: 3, entries=entries)

    result = result_of(world, monkeypatch, tmp_path)

    assert result.stopped
    assert result.problems()[0].startswith(problem)
    assert result.exit_status() is ExitStatus.BROKEN

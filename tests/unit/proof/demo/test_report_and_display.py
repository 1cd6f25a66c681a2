"""What a run came to, and that a person gets to see it: the report, plain lines, the display."""

import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from proof.demo.checker import check_history
from proof.demo.display import LiveDisplay, PlainDisplay, print_summary
from proof.demo.options import DemoOptions
from proof.demo.report import build_page, draw_failover
from proof.demo.result import (
    DemoResult,
    ExitStatus,
    Outage,
    RejectedRows,
    RunCosts,
    measure_failover,
)
from proof.testbed.sampling import CloudSample, RegionSample, RunEvent, SampleTimeline
from tests.unit.proof.demo.histories import effect, message, sound_history

SOUND = check_history(sound_history())
PENDING = check_history(replace(sound_history(), pending=("N1/owed-<7>",)))
LOST = replace(sound_history(), entries=sound_history().entries[:-1], is_over=False)
COPIES_GIVEN_BACK = RunCosts(4, {}, 0.0, 4, abandons=1)


def sample(at: float, east_settled: int, *, east_up: bool = True) -> CloudSample:
    west = RegionSample(host_up=True, namespace_up=True, waiting=2, scheduled=3, dead=0, settled=1)
    east = replace(west, settled=east_settled, host_up=east_up, namespace_up=east_up)
    return CloudSample(at, {"east": east, "west": west})


def result_of_run(*, kills: bool = True, **changes: object) -> DemoResult:
    """A sound first run through an outage, with changes."""
    timeline = SampleTimeline(990.0)
    timeline.samples += [sample(1_000 + at, at, east_up=at != 2) for at in range(6)]
    timeline.events.append(RunEvent(1_001.6, "east KILLED <by us>"))
    added = tuple(
        replace(effect(message("N14228", number)), region=region, at=1_000 + number)
        for number, region in enumerate(("east", "east", "west", "east"))
    )
    outage = Outage(1_001.6, 1_002.9)
    result = DemoResult(
        options=DemoOptions(days=1, source=None, data=Path(), kills=kills),
        check=SOUND,
        rejects=RejectedRows(reported=2, recounted=2),
        costs=RunCosts(4, {"batch": 4}, 30.0, 4, 0),
        added=added,
        is_first=True,
        timeline=timeline,
        outage=outage,
        failover=measure_failover(added, outage, primary="east", others=["west"]),
    )
    return replace(result, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "status", "told"),
    [
        (result_of_run(), ExitStatus.HELD, ""),
        (result_of_run(check=PENDING), ExitStatus.BROKEN, "pending, not delivered: 1 (N1/owed-"),
        (
            result_of_run(rejects=RejectedRows(reported=1, recounted=2)),
            ExitStatus.BROKEN,
            "rejected rows: 1 by the feed, 2 by recount",
        ),
        (
            result_of_run(rejects=RejectedRows(reported=None, recounted=2)),
            ExitStatus.BROKEN,
            "none by the feed",
        ),
        (
            result_of_run(failover=None, outage=None),
            ExitStatus.NOT_SHOWN,
            "no region was killed and brought back",
        ),
        (result_of_run(failover=None, outage=None, kills=False), ExitStatus.HELD, ""),
        (result_of_run(failover=None, outage=None, is_first=False), ExitStatus.HELD, ""),
        (result_of_run(costs=COPIES_GIVEN_BACK), ExitStatus.HELD, ""),
        (
            result_of_run(costs=COPIES_GIVEN_BACK, kills=False),
            ExitStatus.NOT_SHOWN,
            "given back in a run without faults: 1",
        ),
        (
            result_of_run(
                check=check_history(replace(LOST, pending=("N1/owed-7",))), stopped="nothing moved"
            ),
            ExitStatus.BROKEN,
            "lost: 1",
        ),
    ],
)
def test_a_run_breaks_a_promise_falls_short_or_holds(
    result: DemoResult, status: ExitStatus, told: str
) -> None:
    assert result.exit_status() is status
    first, *_ = (*result.problems(), *result.shortfalls(), "")
    assert told in first
    assert bool(told) is bool(first)
    assert bool(result.problems()) is (status is ExitStatus.BROKEN)
    file = io.StringIO()
    print_summary(Console(file=file, width=100), result)
    assert first in file.getvalue()
    holds = status is not ExitStatus.BROKEN
    assert ("every promise held" in file.getvalue()) is holds
    assert ("Every promise held" in build_page(result).render()) is holds


def test_what_was_left_undone_is_told_as_such_and_nothing_is_said_to_hold_or_to_be_broken() -> None:
    left = replace(sound_history(), pending=("N1/owed-<7>",), is_over=False)
    result = result_of_run(
        check=check_history(left),
        rejects=RejectedRows(reported=None, recounted=2),
        stopped="nothing moved for 180 s, waited for the west",
        failover=None,
    )

    assert (result.problems(), result.shortfalls()) == ((), ())
    assert result.exit_status() is ExitStatus.NOT_FINISHED
    file = io.StringIO()
    print_summary(Console(file=file, width=100), result)
    for told in (file.getvalue().lower(), build_page(result).render().lower()):
        assert "nothing moved for 180 s, waited for the west" in told
        assert "pending, not delivered: 1" in told
        assert "rejected rows: the feed has not come to its end" in told
        assert "every promise held" not in told
        assert "was broken" not in told


def test_the_report_is_one_file_that_asks_nobody_for_anything(tmp_path: Path) -> None:
    build_page(result_of_run(check=PENDING)).write(tmp_path / "deep" / "report.html")

    text = (tmp_path / "deep" / "report.html").read_text()
    for foreign in ("http:", "https:", "<script", "<link", "url(", "@import", "src="):
        assert foreign not in text
    assert "east KILLED &lt;by us&gt;" in text
    assert "N1/owed-&lt;7&gt;" in text


def test_the_picture_has_a_bar_for_each_second_and_region_and_marks_the_outage() -> None:
    drawn = draw_failover(result_of_run())

    shapes = [shape.get("class") for shape in ElementTree.fromstring(drawn).iter("g")]
    assert [shapes.count(kind) for kind in ("region0", "region1", "outage")] == [3, 1, 2]
    assert drawn == draw_failover(result_of_run())
    nothing_added = draw_failover(result_of_run(added=(), is_first=False))
    assert "copies settled (no effect was added) a second" in nothing_added


def test_both_displays_show_events_and_regions(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    live = LiveDisplay(Console(file=file, force_terminal=True, width=120, color_system=None))
    first, second = sample(1_000.0, 0), sample(1_001.0, 7, east_up=False)
    for display in (PlainDisplay(), live):
        with display:
            display.begin(SampleTimeline(1_000.0, samples=[first, second]), copies=14)
            display.show_event(RunEvent(1_000.0, "east KILLED"))
            display.pending = 396
            display.show_sample(second)

    for shown in (capsys.readouterr().out, file.getvalue()):
        assert "east KILLED" in shown
        assert "396 pending in the journal" in shown
        assert "down" in shown.lower()
        assert "west" in shown
    assert "8 of 14 copies settled" in file.getvalue()

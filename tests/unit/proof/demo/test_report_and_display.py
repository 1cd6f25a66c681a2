"""What a person gets to see: the report as one file, the plain lines, the live display."""

import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from proof.demo.checker import check_history
from proof.demo.display import LiveDisplay, PlainDisplay, draw_bars, print_summary
from proof.demo.options import DemoOptions
from proof.demo.report import build_page, count_settled_by_second, draw_failover
from proof.demo.result import (
    DemoResult,
    ExitStatus,
    Outage,
    RejectedRows,
    RunCosts,
    measure_failover,
)
from proof.testbed.sampling import CloudSample, RegionSample, RunEvent, SampleTimeline, settle_rates
from tests.unit.proof.demo.histories import effect, message, sound_history


def sample(at: float, east_settled: int, *, east_up: bool = True) -> CloudSample:
    west = RegionSample(host_up=True, namespace_up=True, waiting=2, scheduled=3, dead=0, settled=1)
    east = replace(west, settled=east_settled, host_up=east_up, namespace_up=east_up)
    return CloudSample(at, {"east": east, "west": west})


def result_of_run(report: Path) -> DemoResult:
    timeline = SampleTimeline(990.0)
    timeline.samples += [sample(1_000 + at, at, east_up=at != 2) for at in range(6)]
    timeline.events.append(RunEvent(1_001.6, "east KILLED <by us>"))
    added = tuple(
        replace(effect(message("N14228", number)), region=region, at=1_000 + number)
        for number, region in enumerate(("east", "east", "west", "east"))
    )
    outage = Outage(1_001.6, 1_002.9)
    return DemoResult(
        options=DemoOptions(days=1, source=None, data=report.parent, report=report),
        check=check_history(sound_history()),
        rejects=RejectedRows(reported=2, recounted=2),
        costs=RunCosts(4, {"batch": 4}, 30.0, 4, 0),
        added=added,
        is_first=True,
        timeline=timeline,
        outage=outage,
        failover=measure_failover(added, outage, primary="east", others=["west"]),
    )


def printed(result: DemoResult) -> str:
    file = io.StringIO()
    print_summary(Console(file=file, width=100), result)
    return file.getvalue()


def test_a_sound_run_has_no_problems_and_says_so(tmp_path: Path) -> None:
    result = result_of_run(tmp_path / "report.html")

    assert result.exit_status() is ExitStatus.HELD
    assert "every promise held" in printed(result)
    assert "Every promise held" in build_page(result).render()


def test_a_broken_promise_is_in_the_summary_and_in_the_report(tmp_path: Path) -> None:
    broken = check_history(replace(sound_history(), pending=("N1/owed-<7>",)))
    result = replace(result_of_run(tmp_path / "report.html"), check=broken)

    assert result.problems() == ("pending, not delivered: 1 (N1/owed-<7>)",)
    assert result.exit_status() is ExitStatus.BROKEN
    assert "BROKEN  pending, not delivered: 1" in printed(result)
    assert "A promise was broken" in build_page(result).render()
    assert "N1/owed-&lt;7&gt;" in build_page(result).render()


@pytest.mark.parametrize(
    ("reported", "problem"),
    [(1, "rejected rows: 1 by the feed, 2 by recount"), (None, "none by the feed")],
)
def test_rows_dropped_in_silence_are_a_problem(
    tmp_path: Path, reported: int | None, problem: str
) -> None:
    result = replace(
        result_of_run(tmp_path / "report.html"), rejects=RejectedRows(reported, recounted=2)
    )

    assert problem in result.problems()[0]


def test_a_first_run_without_an_outage_breaks_nothing_and_says_what_it_did_not_show(
    tmp_path: Path,
) -> None:
    result = replace(result_of_run(tmp_path / "report.html"), failover=None, outage=None)
    calm = replace(result, options=replace(result.options, kills=False))
    second = replace(result, is_first=False)

    assert result.exit_status() is ExitStatus.NOT_SHOWN
    assert "BROKEN" not in printed(result)
    assert "NOT SHOWN  no region was killed" in printed(result)
    page = build_page(result).render()
    assert "Every promise held" in page
    assert "no region was killed and brought back" in page
    assert calm.exit_status() is second.exit_status() is ExitStatus.HELD


def test_deliveries_that_are_given_back_break_nothing_and_are_told_where_nothing_was_killed(
    tmp_path: Path,
) -> None:
    result = replace(
        result_of_run(tmp_path / "report.html"), costs=RunCosts(4, {}, 0.0, 4, abandons=1)
    )
    calm = replace(result, options=replace(result.options, kills=False))

    assert result.problems() == calm.problems() == ()
    assert "given back in a run without faults: 1" in calm.shortfalls()[0]
    assert result.shortfalls() == ()
    assert calm.exit_status() is ExitStatus.NOT_SHOWN


def test_what_was_left_undone_is_told_as_such_and_nothing_is_said_to_hold_or_to_be_broken(
    tmp_path: Path,
) -> None:
    left = replace(sound_history(), pending=("N1/owed-<7>",), is_over=False)
    result = replace(
        result_of_run(tmp_path / "report.html"),
        check=check_history(left),
        rejects=RejectedRows(reported=None, recounted=2),
        stopped="nothing moved for 180 s, waited for the west",
        failover=None,
    )

    assert (result.problems(), result.shortfalls()) == ((), ())
    assert result.exit_status() is ExitStatus.NOT_FINISHED
    assert len(set(ExitStatus)) == 4
    page = build_page(result).render()
    for told in (printed(result), page):
        lower = told.lower()
        assert "nothing moved for 180 s, waited for the west" in lower
        assert "pending, not delivered: 1" in lower
        assert "rejected rows: the feed has not come to its end" in lower
        assert "run it again without --fresh" in lower
        assert "every promise held" not in lower
        assert "was broken" not in lower
    assert "BROKEN" not in printed(result)
    assert re.search(r"\bNO\b", printed(result)) is None
    assert "The run did not finish" in page
    assert "✗" not in page


def test_a_promise_that_was_broken_is_told_first_where_the_run_did_not_finish(
    tmp_path: Path,
) -> None:
    lost = replace(sound_history(), entries=sound_history().entries[:-1], is_over=False)
    result = replace(
        result_of_run(tmp_path / "report.html"),
        check=check_history(replace(lost, pending=("N1/owed-7",))),
        stopped="nothing moved",
    )

    assert result.exit_status() is ExitStatus.BROKEN
    assert "BROKEN  lost: 1" in printed(result)
    assert "NOT FINISHED  pending, not delivered: 1" in printed(result)
    assert "every promise held" not in printed(result)
    assert "A promise was broken" in build_page(result).render()
    assert "It did not finish either" in build_page(result).render()


def test_the_report_is_one_file_that_asks_nobody_for_anything(tmp_path: Path) -> None:
    build_page(result_of_run(tmp_path)).write(tmp_path / "deep" / "report.html")

    text = (tmp_path / "deep" / "report.html").read_text()
    for foreign in ("http:", "https:", "<script", "<link", "url(", "@import", "src="):
        assert foreign not in text
    assert "prefers-color-scheme: dark" in text
    assert "east KILLED &lt;by us&gt;" in text


def test_the_picture_has_a_bar_for_each_second_and_region_and_marks_the_outage(
    tmp_path: Path,
) -> None:
    drawing = ElementTree.fromstring(draw_failover(result_of_run(tmp_path / "report.html")))

    shapes = [shape.get("class") for shape in drawing.iter("g")]
    assert shapes.count("region0") == 3
    assert shapes.count("region1") == 1
    assert shapes.count("outage") == 2
    texts = [shape.text for shape in drawing.iter("text")]
    assert "east killed at 12 s" in texts
    assert "east back at 13 s" in texts


def test_a_run_that_added_nothing_is_drawn_from_what_was_settled(tmp_path: Path) -> None:
    result = replace(result_of_run(tmp_path / "report.html"), added=(), is_first=False)

    assert "copies settled (no effect was added) a second" in draw_failover(result)
    assert sum(count_settled_by_second(result.timeline)["east"]) == 5


def test_the_same_run_is_drawn_alike_byte_for_byte(tmp_path: Path) -> None:
    result = result_of_run(tmp_path / "report.html")

    assert draw_failover(result) == draw_failover(result)


def test_plain_lines_tell_events_and_both_regions(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay() as display:
        display.show_event(RunEvent(1_000.0, "east KILLED"))
        display.show_sample(sample(1_001.0, 7, east_up=False))
        display.show_sample(sample(1_002.0, 8))

    event, line = capsys.readouterr().out.splitlines()
    assert event.endswith("east KILLED")
    assert "east DOWN: 2 waiting, 3 scheduled, 7 settled | west up" in line


def test_what_is_pending_is_told_beside_the_regions(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainDisplay() as display:
        display.pending = 1_009
        display.show_sample(sample(1_001.0, 7))
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, color_system=None)
    with LiveDisplay(console) as live:
        live.pending = 396
        live.show_sample(sample(1_001.0, 7))

    assert "1009 pending in the journal" in capsys.readouterr().out
    assert "396 pending in the journal" in file.getvalue()


def test_the_live_display_shows_both_regions_side_by_side() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    timeline = SampleTimeline(
        1_000.0, samples=[sample(1_000.0, 0), sample(1_001.0, 7, east_up=False)]
    )

    with LiveDisplay(console) as display:
        display.begin(timeline, copies=14)
        display.show_event(RunEvent(1_001.0, "east KILLED"))
        display.show_sample(timeline.samples[-1])

    for text in ("east KILLED", "● down", "● up", "8 of 14 copies settled", "west"):
        assert text in file.getvalue()


def test_rates_are_per_second_and_bars_grow_with_them() -> None:
    samples = [sample(0.0, 0), sample(0.5, 10), sample(1.0, 15)]

    assert settle_rates(samples, "east") == [20.0, 10.0]
    assert draw_bars([0.0, 10.0, 20.0]) == " ▄█"
    assert draw_bars([]) == ""

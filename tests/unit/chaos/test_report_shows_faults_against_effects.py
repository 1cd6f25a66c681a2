"""Numbers, picture and page of a run, from a history made by hand."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.course import Bar
from chaos.figures import Latency, figures
from chaos.judge.verdict import judge
from chaos.options import Cardinality, Options
from chaos.picture import draw
from chaos.plan import Blow
from chaos.report import Report
from chaos.timeline import Stretch, Timeline
from demo.samples import Event
from tests.unit.chaos.histories import QUIET_UNTIL, flawless, without

# Messages are safe at the tenth second of the run, their effects come out at the fifteenth.
BEGIN = QUIET_UNTIL - 20
TIMELINE = Timeline(
    phases=(Stretch("quiet", BEGIN, QUIET_UNTIL), Stretch("bad weather", QUIET_UNTIL, BEGIN + 40)),
    bars=(
        Bar("host east", str(Blow.REGION), BEGIN + 22, BEGIN + 25),
        Bar("servicebus.east", str(Blow.REGION), BEGIN + 22, BEGIN + 25),
        Bar("cosmos.journal", "status 503 of <batch>, 20%", BEGIN + 24, BEGIN + 28),
    ),
    waiting={"east": ((BEGIN + 1, 4), (BEGIN + 30, 0)), "west": ((BEGIN + 1, 2),)},
    events=(Event(BEGIN + 22, "the east is dark"),),
)


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(
        data=tmp_path,
        seed=7,
        seconds=40,
        messages=None,
        rate=10,
        backlog_max=100,
        operation_max=8,
        ease=1,
        cardinality=Cardinality.ONE,
        report=tmp_path / "pages" / "report.html",
    )


def test_effects_are_counted_by_region_and_second_and_timed_from_their_acceptance() -> None:
    found = figures(flawless(), TIMELINE)

    assert found.step == 1.0
    assert {region: [*rates].index(15.0) for region, rates in found.rates.items()} == {
        "east": 15,
        "west": 15,
    }
    assert [sum(rates) for rates in found.rates.values()] == [15.0, 15.0]
    assert found.overall == Latency(p50=5.0, p99=5.0)
    assert found.latencies[10] == Latency(p50=5.0, p99=5.0)
    assert list(found.pending[8:18]) == [0, 0, 15, 15, 15, 15, 15, 0, 0, 0]


def test_a_repeated_copy_is_not_a_second_effect() -> None:
    history = flawless()
    late = tuple(replace(s, number=s.number + 1_000, at=s.at + 3) for s in history.seen)

    assert figures(replace(history, seen=history.seen + late), TIMELINE) == figures(
        history, TIMELINE
    )


def test_the_slowest_of_a_hundred_is_the_99th_percentile_of_few() -> None:
    history = flawless()
    slow = tuple(replace(s, at=s.at + 7) if s.id == "N0-0" else s for s in history.seen)

    assert figures(replace(history, seen=slow), TIMELINE).overall == Latency(p50=5.0, p99=12.0)


def test_the_picture_has_a_lane_for_everything_that_was_struck_and_its_text_is_safe() -> None:
    drawn = draw(TIMELINE, figures(flawless(), TIMELINE))

    lanes = re.findall(r'<text class="tick" [^>]*text-anchor="end">([a-z. ]+)</text>', drawn)
    assert lanes[:3] == ["host east", "servicebus.east", "cosmos.journal"]
    assert len(re.findall(r'<rect class="blow"', drawn)) == 2
    assert len(re.findall(r'<rect class="squall"', drawn)) == 1
    assert "&lt;batch&gt;" in drawn
    assert "<batch>" not in drawn


def test_the_page_says_that_every_promise_held_and_is_whole(options: Options) -> None:
    history = flawless()
    Report.of(options, history, TIMELINE, judge(history)).write()

    page = options.report.read_text()
    assert "Every promise held" in page
    assert "$" not in page
    assert "http" not in page
    assert page.count('<td class="good">✓</td>') == 9


def test_the_page_and_the_figures_name_what_was_broken(options: Options) -> None:
    history = without(flawless(), "N1-3", "west")
    report = Report.of(options, history, TIMELINE, judge(history))
    report.write()

    page = options.report.read_text()
    assert report.violations == 1
    assert "A promise was broken" in page
    assert "N1 message 3 missing in west" in page
    assert page.count('<td class="bad">✗</td>') == 1
    rows = {row.label: row.value for row in report.rows()}
    assert rows["taken away"] == "1 region dark"
    assert rows["spoiled"] == "1 status"
    assert rows["messages accepted"] == "18 in 3 sessions"

"""Numbers, picture and page of a run, from a history made by hand."""

from dataclasses import replace
from pathlib import Path

from proof.chaos.checker.promises import check_history
from proof.chaos.figures import Latency, PhaseInterval, RunTimeline, compute_figures
from proof.chaos.options import ChaosOptions
from proof.chaos.plan import OutageKind
from proof.chaos.progress import FaultInterval
from proof.chaos.report import ChaosReport
from proof.testbed.sampling import RunEvent
from tests.unit.proof.chaos.histories import BASELINE_UNTIL, flawless, without

# Messages are safe at the tenth second of the run, their effects come out at the fifteenth.
BEGIN = BASELINE_UNTIL - 20
TIMELINE = RunTimeline(
    phases=(
        PhaseInterval("quiet", BEGIN, BASELINE_UNTIL),
        PhaseInterval("faults", BASELINE_UNTIL, BEGIN + 40),
    ),
    faults=(
        FaultInterval("host east", str(OutageKind.REGION), BEGIN + 22, BEGIN + 25),
        FaultInterval("servicebus.east", str(OutageKind.REGION), BEGIN + 22, BEGIN + 25),
        FaultInterval("cosmos.journal", "status 503 of <batch>, 20%", BEGIN + 24, BEGIN + 28),
    ),
    waiting={"east": ((BEGIN + 1, 4), (BEGIN + 30, 0)), "west": ((BEGIN + 1, 2),)},
    events=(RunEvent(BEGIN + 22, "the east is unavailable"),),
)


def test_effects_are_counted_by_region_and_second_and_timed_from_their_acceptance() -> None:
    found = compute_figures(flawless(), TIMELINE)

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

    assert compute_figures(replace(history, seen=history.seen + late), TIMELINE) == compute_figures(
        history, TIMELINE
    )


def test_the_slowest_of_a_hundred_is_the_99th_percentile_of_few() -> None:
    history = flawless()
    slow = tuple(replace(s, at=s.at + 7) if s.id == "N0-0" else s for s in history.seen)

    assert compute_figures(replace(history, seen=slow), TIMELINE).overall == Latency(
        p50=5.0, p99=12.0
    )


def test_the_page_draws_a_lane_for_every_fault_and_names_what_was_broken(tmp_path: Path) -> None:
    history = without(flawless(), "N1-3", "west")
    options = ChaosOptions(
        data=tmp_path / "pages",
        seed=7,
        seconds=40,
        messages=None,
        rate=10,
        operation_max=8,
        pause_factor=1,
        calls=16,
    )
    report = ChaosReport(options, history, TIMELINE, check_history(history))
    report.page().write(options.report)

    page = options.report.read_text()
    assert report.violations == 1
    assert "A promise was broken" in page
    assert "N1 message 3 missing in west" in page
    assert page.count('<g class="removed"') == 2
    assert page.count('<g class="degraded"') == 1
    assert "<batch>" not in page

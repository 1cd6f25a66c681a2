"""Who did the work before, during and after the outage, and how soon the other region took over."""

from dataclasses import replace

import pytest

from proof.demo.checker import StoredEntry
from proof.demo.result import Failover, Outage, OutagePhase, measure_failover
from tests.unit.proof.demo.histories import effect, message

OUTAGE = Outage(killed_at=100.4, recovered_at=110.6)


def effects(region: str, *seconds: int) -> list[StoredEntry]:
    first = effect(message("N14228", 0))
    return [replace(first, region=region, at=second) for second in seconds]


def seen(*entries: StoredEntry) -> Failover:
    return measure_failover(entries, OUTAGE, primary="east", others=["west"])


def test_effects_are_counted_by_region_and_phase() -> None:
    found = seen(*effects("east", 99, 100, 111), *effects("west", 98, 105, 106, 110, 112))

    assert found.effects == {
        ("east", OutagePhase.BEFORE): 2,
        ("east", OutagePhase.DURING): 0,
        ("east", OutagePhase.AFTER): 1,
        ("west", OutagePhase.BEFORE): 1,
        ("west", OutagePhase.DURING): 3,
        ("west", OutagePhase.AFTER): 1,
    }


def test_take_over_runs_from_the_kill_to_the_first_effect_by_the_other_region() -> None:
    found = seen(*effects("east", 100), *effects("west", 90, 106, 105))

    assert found.take_over_seconds == pytest.approx(4.6)
    assert seen(*effects("east", 100, 120)).take_over_seconds is None


def test_a_failover_in_mid_flow_falls_short_of_nothing() -> None:
    assert seen(*effects("east", 99, 99, 120), *effects("west", 105)).shortfalls() == ()


@pytest.mark.parametrize(
    ("entries", "shortfall"),
    [
        ([*effects("west", 105), *effects("east", 120)], "no effect before it was killed"),
        ([*effects("west", 105), *effects("east", 90)], "no effect after it came back"),
        ([*effects("west", 105), *effects("east", 90, 91, 92, 120, 121)], "less than 20%"),
    ],
)
def test_what_keeps_a_run_from_showing_a_failover_is_named(
    entries: list[StoredEntry], shortfall: str
) -> None:
    (found,) = seen(*entries).shortfalls()

    assert shortfall in found

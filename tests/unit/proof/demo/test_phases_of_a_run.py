"""When the kill and the return are due, decided on samples alone."""

import pytest

from proof.demo.run import is_drained, is_kill_due, is_return_due
from proof.testbed.sampling import CloudSample, RegionSample, read_sample


def region(**changes: int | bool) -> RegionSample:
    given: dict[str, int | bool] = {"host_up": True, "namespace_up": True}
    given |= {"waiting": 0, "scheduled": 0, "dead": 0, "settled": 0}
    return RegionSample(**(given | changes))  # type: ignore[arg-type]


def sample(east: RegionSample, west: RegionSample) -> CloudSample:
    return CloudSample(0.0, {"east": east, "west": west})


def test_the_kill_is_due_when_the_primary_has_handled_its_part() -> None:
    for settled, is_due in ((299, False), (300, True)):
        assert is_kill_due(sample(region(settled=settled), region()), "east", 1_000) is is_due


def test_copies_of_finished_work_do_not_bring_the_primary_back() -> None:
    killed = sample(region(settled=300), region(settled=100, scheduled=80, waiting=20))
    for settled, is_due in ((449, False), (450, True)):
        now = sample(region(settled=300), region(settled=settled))
        assert is_return_due(now, killed, "west", 1_000) is is_due


@pytest.mark.parametrize(
    ("east", "is_over"),
    [
        (region(settled=5), True),
        (region(waiting=1), False),
        (region(scheduled=1), False),
        (region(dead=1), False),
        (region(host_up=False), False),
        (region(namespace_up=False), False),
    ],
)
def test_drained_means_nothing_outstanding_and_everybody_there(
    east: RegionSample, is_over: bool
) -> None:
    assert is_drained(sample(east, region())) is is_over


def test_a_sample_is_read_from_what_the_control_endpoint_says() -> None:
    depths = {"active": 3, "scheduled": 4, "locked": 2, "deferred": 0, "dead_lettered": 1}
    counters = {"servicebus.east": {"complete": {"ok": {"count": 7}, "lock-lost": {"count": 5}}}}

    seen = read_sample(
        9.0,
        "lockstep",
        counters,
        {name: {"lockstep": depths} for name in ("east", "west")},
        {"east": {"state": "running"}, "west": {"state": "dead"}},
        frozenset({"servicebus.west"}),
    )

    assert seen.regions["east"] == region(waiting=5, scheduled=4, dead=1, settled=7)
    west = seen.regions["west"]
    assert (west.host_up, west.namespace_up, west.settled) == (False, False, 0)
    assert seen.outstanding == 18

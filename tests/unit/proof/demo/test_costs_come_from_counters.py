"""Costs are what the counters say happened between two looks at them."""

from local.testing.control import Counters
from proof.demo.result import compute_costs


def counted(batches: int, conflicts: int, abandons: int) -> Counters:
    return {
        "cosmos": {"account": {"200": {"count": 3, "bytes": 10, "request_units": 0.0}}},
        "cosmos.journal": {
            "batch": {
                "200": {"count": batches, "bytes": 900, "request_units": 7.5 * batches},
                "207": {"count": conflicts, "bytes": 90, "request_units": 1.0 * conflicts},
            },
        },
        "servicebus.east": {
            "abandon": {"ok": {"count": abandons, "bytes": 0, "request_units": 0.0}},
            "complete": {"ok": {"count": 8, "bytes": 0, "request_units": 0.0}},
        },
    }


def test_costs_are_the_difference_of_two_snapshots() -> None:
    spent = compute_costs(counted(10, 1, 2), counted(14, 4, 5), messages=4)

    assert spent.operations == {"batch": 7}
    assert spent.request_units == 4 * 7.5 + 3
    assert spent.commits == 4
    assert spent.abandons == 3


def test_amounts_are_divided_by_the_messages() -> None:
    spent = compute_costs({}, counted(4, 0, 0), messages=8)

    assert (spent.commits, spent.per_message(spent.commits)) == (4, 0.5)
    assert compute_costs({}, {}, messages=0).per_message(5) == 0

"""Reading faults from JSON."""

from typing import Any

import pytest

from local.faults import Action, Fault, Faults, InvalidFault


def test_a_fault_is_read_with_its_defaults() -> None:
    fault = Fault.parse({"component": "cosmos", "action": "drop-answer"})

    assert fault == Fault("cosmos", Action.DROP_ANSWER, "*", 503, 0.0, 1.0, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "explode"},
        {"component": 7},
        {"rate": 1.5},
        {"rate": "often"},
        {"seconds": -1},
        {"seconds": "long"},
        {"status": 200},
        {"status": True},
        {"times": 0},
        {"times": 1.5},
        {"duration_seconds": 0},
        {"colour": "red"},
    ],
)
def test_a_bad_value_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidFault):
        Fault.parse({"component": "cosmos", "action": "down", **wrong})


def test_a_fault_is_spent_after_its_number_of_hits() -> None:
    faults = Faults()
    faults.arm(Fault("cosmos", Action.STATUS, "create", times=2))

    struck = [faults.strike("cosmos", name) for name in ("read", "create", "create", "create")]

    assert [one is not None for one in struck] == [False, True, True, False]

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
        {"duration_seconds": float("nan")},
        {"seconds": float("inf")},
        {"region": 7},
        {"entity": 7},
        {"substatus": "many"},
        {"substatus": 1002},
        {"colour": "red"},
    ],
)
def test_a_bad_value_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong

    with pytest.raises(InvalidFault, match=name):
        Fault.parse({"component": "cosmos", "action": "delay", **wrong})


@pytest.mark.parametrize("name", ["component", "action"])
def test_what_is_missing_is_named(name: str) -> None:
    whole = {"component": "cosmos", "action": "down"}

    with pytest.raises(InvalidFault, match=f"needs the field '{name}'"):
        Fault.parse({key: value for key, value in whole.items() if key != name})


@pytest.mark.parametrize("wrong", [{"times": 3}, {"rate": 0.5}])
def test_what_is_down_altogether_is_not_down_now_and_then(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidFault, match="neither times nor rate"):
        Fault.parse({"component": "cosmos", "action": "down", **wrong})

    Fault.parse({"component": "cosmos", "action": "down", "operation": "read", **wrong})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"seconds": 5, "operation": "read"}, "of no operation"),
        ({"seconds": 5, "times": 1}, "neither times nor rate"),
        ({"seconds": 5, "rate": 0.5}, "neither times nor rate"),
        ({}, "needs seconds"),
        ({"action": "slow-link"}, "needs seconds"),
        ({"action": "silent", "operation": "send"}, "of no operation"),
        ({"action": "silent", "entity": "orders"}, "of no entity"),
        ({"action": "stale-read"}, "needs seconds"),
        ({"action": "move-writes"}, "needs the region that takes the writes"),
        ({"action": "move-writes", "region": "west", "operation": "create"}, "of no operation"),
        ({"action": "stale-read", "seconds": -5}, "must not be negative"),
    ],
)
def test_a_fault_that_says_too_little_or_too_much_is_refused(
    wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidFault, match=reason):
        Fault.parse({"component": "cosmos", "action": "clock-offset", **wrong})


def test_a_clock_can_be_slow_for_as_long_as_the_fault_is_in_force() -> None:
    faults = Faults()
    fault = Fault.parse({"component": "cosmos", "action": "clock-offset", "seconds": -5})
    number = faults.arm(fault)

    assert faults.inject("cosmos", "read") is None
    assert faults.in_force(Action.CLOCK_OFFSET) == [fault]
    assert faults.in_force(Action.STALE_READ) == []
    faults.disarm(number)
    assert faults.in_force(Action.CLOCK_OFFSET) == []


def test_a_fault_is_spent_after_its_number_of_hits() -> None:
    faults = Faults()
    faults.arm(Fault("cosmos", Action.STATUS, "create", times=2))

    found = [faults.inject("cosmos", name) for name in ("read", "create", "create", "create")]

    assert [one is not None for one in found] == [False, True, True, False]


def test_a_fault_of_a_region_leaves_the_others_alone() -> None:
    faults = Faults()
    faults.arm(Fault("cosmos", Action.DOWN, region="west"))

    assert faults.is_down("cosmos.journal", "west")
    assert not faults.is_down("cosmos.journal", "east")
    assert faults.inject("cosmos.journal", "read", region="east") is None
    assert faults.inject("cosmos.journal", "read", region="west") is not None


def test_a_fault_of_an_entity_leaves_the_others_and_what_is_for_several_alone() -> None:
    faults = Faults()
    number = faults.arm(Fault("cosmos", Action.DOWN, entity="1"))

    assert [faults.is_down("cosmos.journal", entity=one) for one in ("1", "0", "10", None)] == [
        True,
        False,
        False,
        False,
    ]
    faults.disarm(number)
    faults.arm(Fault("cosmos", Action.STATUS, entity="1"))
    found = [faults.inject("cosmos.journal", "read", entity=one) for one in ("1", "0", None)]
    assert [one is not None for one in found] == [True, False, False]


def test_a_watcher_is_called_at_each_arming_until_it_stops() -> None:
    faults, counts = Faults(), list[int]()
    end = faults.watch(lambda: counts.append(len(faults.listing())))

    faults.arm(Fault("durable", Action.DOWN))
    end()
    faults.arm(Fault("cosmos", Action.DOWN))

    assert counts == [1]


def test_faults_in_force_are_listed_as_they_were_armed_with_their_hits() -> None:
    faults = Faults()
    number = faults.arm(Fault("cosmos", Action.STATUS, "read", status=429, seconds=0.5))
    faults.inject("cosmos.journal", "read")

    assert faults.listing() == [
        {
            "id": number,
            "component": "cosmos",
            "action": "status",
            "operation": "read",
            "status": 429,
            "seconds": 0.5,
            "rate": 1.0,
            "times": None,
            "duration_seconds": None,
            "region": None,
            "substatus": None,
            "entity": None,
            "hits": 1,
        }
    ]

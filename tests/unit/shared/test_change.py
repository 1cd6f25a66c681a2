"""A change makes exactly the state that it was found for, or none is found."""

import json
from random import Random
from typing import Any

import pytest

from shared.domain.change import apply_change, find_change
from shared.domain.handler import LEVELS_MAX
from tests.contract.container import nested

ENOUGH = 1_000_000
NAMES = ("a", "b", "", "~", "/", "~1", "0", "ü", "a b")
LEAVES: tuple[Any, ...] = (None, True, False, 0, 1, -1, 1.5, 2**53, "", "1", "Zoë", "\ud800")


def value(draw: Random, levels: int) -> Any:
    """Any JSON value."""
    kind = draw.random()
    if levels == 0 or kind < 0.4:
        return draw.choice(LEAVES)
    if kind < 0.7:
        return [value(draw, levels - 1) for _ in range(draw.randrange(5))]
    names = draw.sample(NAMES, draw.randrange(5))
    return {name: value(draw, levels - 1) for name in names}


def changed(draw: Random, before: Any) -> Any:
    """The same value with something in it changed, as handlers do it, or with nothing."""
    if isinstance(before, dict) and before and draw.random() < 0.9:
        after = dict(before)
        name = draw.choice(list(after))
        match draw.randrange(4):
            case 0:
                del after[name]
            case 1:
                after[draw.choice(NAMES)] = value(draw, 2)
            case _:
                after[name] = changed(draw, after[name])
        return after
    if isinstance(before, list) and before and draw.random() < 0.9:
        place = draw.randrange(len(before))
        more = [value(draw, 2) for _ in range(draw.randrange(3))]
        lists = [
            [*before[1:], *more],
            [*more, *before[: place + 1]],
            [*before[:place], *more, *before[place:]],
            [*before[:place], *before[place + 1 :]],
            [*before[:place], changed(draw, before[place]), *before[place + 1 :]],
        ]
        return draw.choice(lists)
    return value(draw, 2)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_handler_changes_comes_back_to_the_last_byte(seed: int) -> None:
    draw = Random(seed)
    found = 0
    for _ in range(250):
        base = {name: value(draw, 3) for name in draw.sample(NAMES, draw.randrange(1, 7))}
        before, state = json.dumps(base), base
        for _ in range(draw.randrange(1, 4)):
            state = changed(draw, state)
        if not isinstance(state, dict):
            continue
        change = find_change(base, state, ENOUGH)
        if change is not None:
            # It is stored as JSON, and read back.
            stored = json.loads(json.dumps(change))
            assert json.dumps(apply_change(base, stored)) == json.dumps(state)
            found += 1
        assert json.dumps(base) == before
    assert found > 150


EVENTS = [{"n": n, "text": f"event {n}"} for n in range(20)]
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = {
    "nothing": ({"a": 1}, {"a": 1}, []),
    "a field": ({"a": 1, "b": [2]}, {"a": 3, "b": [2]}, [("replace", "/a")]),
    "to null": ({"a": 1}, {"a": None}, [("replace", "/a")]),
    "within a list": ({"a": [{"b": 1}, 2]}, {"a": [{"b": 0}, 2]}, [("replace", "/a/0/b")]),
    "one more": ({"a": EVENTS}, {"a": [*EVENTS, 7]}, [("add", "/a/20")]),
    "one fewer": ({"a": EVENTS}, {"a": EVENTS[:-1]}, [("remove", "/a/19")]),
    "one taken out": (
        {"a": EVENTS},
        {"a": [*EVENTS[:3], *EVENTS[4:]]},
        [("remove", "/a/3")],
    ),
    "the last twenty": (
        {"a": EVENTS},
        {"a": [*EVENTS[2:], 7, 8]},
        [("remove", "/a/0"), ("remove", "/a/0"), ("add", "/a/18"), ("add", "/a/19")],
    ),
    "the newest first": (
        {"a": EVENTS},
        {"a": [7, *EVENTS[:-1]]},
        [("add", "/a/0"), ("remove", "/a/20")],
    ),
    "a name that comes and one that goes": (
        {"a": {"x": 1, "y": 2}},
        {"a": {"y": 2, "z": 3}},
        [("remove", "/a/x"), ("add", "/a/z")],
    ),
    "another order": ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3, "x": 1}}, [("replace", "/a")]),
    "names that are escaped": ({"~/": {"": 1}}, {"~/": {"": 2}}, [("replace", "/~0~1/")]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_says_no_more_than_what_was_changed(case: str) -> None:
    base, state, expected = CASES[case]

    change = find_change(base, state, ENOUGH)

    assert change is not None
    assert [(one["op"], one["path"]) for one in change] == expected
    assert json.dumps(apply_change(base, change)) == json.dumps(state)


UNTOLD: dict[str, tuple[Any, Any]] = {
    "true for one": (1, True),
    "true for one in a list": ([0, 1], [0, True]),
    "nothing but another order": ({"x": 1, "y": 2}, {"y": 2, "x": 1}),
    "too many bytes": ("", "x" * ENOUGH),
    "nested as deep as a state may be": (0, nested(LEVELS_MAX - 2)),
}


@pytest.mark.parametrize("case", UNTOLD)
def test_what_no_change_can_say_is_written_whole(case: str) -> None:
    before, after = UNTOLD[case]

    assert find_change({"a": before}, {"a": after}, ENOUGH) is None


def test_a_float_and_the_whole_number_of_its_value_are_one() -> None:
    """A store may give either back."""
    assert find_change({"a": 1.0, "b": 1}, {"a": 1, "b": 2.0}, ENOUGH) is not None

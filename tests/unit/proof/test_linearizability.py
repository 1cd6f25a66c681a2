"""The checker of histories accepts what some order explains, and names what none does."""

import random
from collections.abc import Sequence
from itertools import chain, combinations, permutations
from typing import Any

import pytest

from proof.linearizability import UNKNOWN, TimedCall, find_fault
from proof.simulation.work.diaries import DiaryModel, Read, Write

type AnyCall = TimedCall[Any, Any]

READ = Read()


def write(line: str, began: float, ended: float | None = None, answer: Any = UNKNOWN) -> AnyCall:
    return TimedCall(
        line, Write(line), began, ended, answer if answer is UNKNOWN else tuple(answer)
    )


def read(began: float, ended: float, lines: str) -> AnyCall:
    return TimedCall(f"read {began}", READ, began, ended, tuple(lines))


GOOD = {
    "one after another": [write("a", 0, 1, "a"), write("b", 2, 3, "ab"), read(4, 5, "ab")],
    "side by side, the later one first": [write("a", 0, 3, "ba"), write("b", 1, 2, "b")],
    "a read beside a write sees it": [write("a", 0, 3, "a"), read(1, 2, "a")],
    "a read beside a write does not see it yet": [write("a", 0, 3, "a"), read(1, 2, "")],
    "calls that touch are side by side": [write("a", 0, 1, "ba"), write("b", 1, 2, "b")],
    "nobody heard an answer, and it took effect": [write("a", 0), read(1, 2, "a")],
    "nobody heard an answer, and it takes effect late": [
        *(write("a", 0), read(1, 2, ""), write("b", 3, 4, "ab"))
    ],
    "nobody heard an answer, and it never takes effect": [write("a", 0), read(5, 6, "")],
    "messages of a queue, in any order": [
        *(write("a", 0), write("b", 0), write("c", 0), write("d", 0), read(1, 2, "cad"))
    ],
    "a message that surely arrived": [write("a", 0, 9), read(1, 2, ""), read(10, 11, "a")],
    "an ask that is tried again": [
        *(write("a", 0), write("b", 1, 2, "ab"), write("a", 3, 4, "a"), read(5, 6, "ab"))
    ],
    "an ask that two clients hear of": [write("a", 0, 3, "a"), write("a", 1, 2, "a")],
}
BAD = {
    "a stale read": [write("a", 0, 1, "a"), read(2, 3, "")],
    "a read that goes back": [write("a", 0), read(1, 2, "a"), read(3, 4, "")],
    "two reads that see another order": [
        *(write("a", 0), write("b", 0), read(1, 2, "ab"), read(1, 2, "ba"))
    ],
    "a double effect": [write("a", 0, 1, "a"), read(2, 3, "aa")],
    "a double effect that its second answer shows": [
        *(write("a", 0, 1, "a"), write("b", 2, 3, "ab"), write("a", 4, 5, "aba"))
    ],
    "a lost update": [write("a", 0, 1, "a"), write("b", 2, 3, "b"), read(4, 5, "b")],
    "a lost message": [write("a", 0, 3), read(4, 5, "")],
    "an order against real time": [
        *(write("a", 0, 1, "ba"), write("b", 2, 3, "b"), read(4, 5, "ba"))
    ],
    "an effect before its beginning": [read(0, 1, "a"), write("a", 2, 3, "a")],
    "an effect that nobody asked for": [read(0, 1, "a")],
    "an effect after the answer to another try": [
        *(write("a", 0, 1, "a"), read(2, 3, ""), write("a", 4, 5, "a"))
    ],
}


@pytest.mark.parametrize("history", GOOD)
def test_it_accepts(history: str) -> None:
    assert find_fault(DiaryModel(), GOOD[history]) is None


@pytest.mark.parametrize("history", BAD)
def test_it_refuses(history: str) -> None:
    assert find_fault(DiaryModel(), BAD[history])


def test_it_names_the_calls_that_no_order_explains() -> None:
    assert find_fault(DiaryModel(), BAD["a stale read"]) == (
        "no order explains TimedCall(key='a', request=Write(line='a'), began=0, ended=1,"
        " answer=('a',)), and then TimedCall(key='read 2', request=Read(), began=2, ended=3,"
        " answer=());"
        " before that the state was ()"
    )


def test_a_long_history_with_many_calls_that_nobody_heard_of_is_soon_checked() -> None:
    """With permutations of what is unknown this would never end."""
    lines = [f"line {n}" for n in range(300)]
    unheard = [write(line, 0) for line in lines[::2]]
    heard = [write(line, n, n + 3, lines[: n + 1]) for n, line in enumerate(lines) if n % 2]

    assert find_fault(DiaryModel(), [*unheard, *heard]) is None


class Register:
    """A model whose answers tell little: the value that was there before."""

    initial = 0

    def apply(self, state: int, request: int | None) -> tuple[int, int]:
        return (state if request is None else request), state

    def may_lead_to(self, _: int, __: int) -> bool:
        return True


def find_by_trying(model: Any, calls: Sequence[AnyCall]) -> bool:
    """Whether any order of all that ended and some that did not explains a history."""
    ended = [one for one in calls if one.ended is not None]
    others = [one for one in calls if one.ended is None]
    some = chain.from_iterable(combinations(others, n) for n in range(len(others) + 1))
    orders = (order for more in some for order in permutations([*ended, *more]))
    return any(explains(model, order) for order in orders)


def explains(model: Any, order: Sequence[AnyCall]) -> bool:
    state = model.initial
    for place, call in enumerate(order):
        state, answer = model.apply(state, call.request)
        if call.answer not in (UNKNOWN, answer):
            return False
        if any(one.ended is not None and one.ended < call.began for one in order[place + 1 :]):
            return False
    return True


def draw_history(model: Any, requests: Sequence[Any], draw: random.Random) -> list[AnyCall]:
    """A few calls; most of them are answered as an object that is sound would answer."""
    states, calls, at = [model.initial], list[AnyCall](), 0
    for number in range(draw.randint(1, 5)):
        request = requests[number] if draw.random() < 0.7 else requests[-1]
        at += draw.choice((0, 1, 2))
        after, answer = model.apply(states[-1], request)
        began, ended = at - draw.randint(0, 3), at + draw.randint(0, 3)
        match draw.random():
            case luck if luck < 0.15:
                calls.append(TimedCall(f"{number}", request, began))
            case luck if luck < 0.25:
                calls.append(TimedCall(f"{number}", request, began, ended))
            case luck if luck < 0.4:
                _, stale = model.apply(draw.choice(states), request)
                calls.append(TimedCall(f"{number}", request, began, ended, stale))
            case _:
                calls.append(TimedCall(f"{number}", request, began, ended, answer))
        states.append(after)
    return calls


@pytest.mark.parametrize("name", ["diary", "register"])
def test_it_says_of_tiny_histories_what_trying_every_order_says(name: str) -> None:
    model: Any = {"diary": DiaryModel(), "register": Register()}[name]
    requests: list[Any] = [*map(Write, "abcde"), READ]
    if name == "register":
        requests = [1, 2, 1, 2, 3, None]
    said: set[bool] = set()
    for seed in range(400):
        calls = draw_history(model, requests, random.Random(f"{name} {seed}"))
        is_sound = find_by_trying(model, calls)
        assert (find_fault(model, calls) is None) is is_sound, calls
        said.add(is_sound)
    assert said == {True, False}

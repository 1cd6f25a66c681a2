"""Is a history of concurrent calls one of an object that takes its calls one at a time?

A history is linearizable where each call can be given one instant between its beginning and its
end, such that the calls give, in the order of these instants, the answers that were given. The
search is Lowe's: it goes through beginnings and ends in their order, keeps every state in which the
object may be, and applies calls only when one of them has to have been applied. No situation is
looked at twice. Where answers tell the whole order, those to come leave few situations.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Protocol


class Unknown(Enum):
    """The answer of a call that nobody heard."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True)
class TimedCall[Request: Hashable, Answer: Hashable]:
    """One call, or one of several tries at it, which have the same key.

    `began` and `ended` are numbers of any one clock; where they are equal, calls are concurrent. A
    call without an end has no answer either: it may have taken effect at any time after its
    beginning, or never. One that ended took effect, whether its answer is known or not.
    """

    key: str
    request: Request
    began: float
    ended: float | None = None
    answer: Answer | Unknown = UNKNOWN


class Model[State: Hashable, Request: Hashable, Answer: Hashable](Protocol):
    """The object as it is when it takes one call after another."""

    initial: State

    def apply(self, state: State, request: Request) -> tuple[State, Answer]:
        """Return the state after a request, and the answer to it."""

    def may_lead_to(self, state: State, answer: Answer) -> bool:
        """Return whether a later answer may be this one; True is right wherever that is unclear."""


def find_fault[State: Hashable, Request: Hashable, Answer: Hashable](
    model: Model[State, Request, Answer], tries: Iterable[TimedCall[Request, Answer]]
) -> str | None:
    """Say what no order of the calls explains; None where the history is linearizable.

    All tries with one key are one call: it took effect once, in or after the first of them and
    before the first answer, and all answers to it are the same.
    """
    calls = []
    for key, own in groupby(sorted(tries, key=lambda one: one.key), lambda one: one.key):
        same = [*own]
        answers = list(dict.fromkeys(one.answer for one in same if one.answer is not UNKNOWN))
        if len(answers) > 1:
            return f"{key} was answered with {answers[0]} and with {answers[1]}"
        if len({one.request for one in same}) > 1:
            raise ValueError(f"{key} is the key of several requests")
        began = min(one.began for one in same)
        ended = min((one.ended for one in same if one.ended is not None), default=None)
        answer = answers[0] if answers else UNKNOWN
        calls.append(TimedCall(key, same[0].request, began, ended, answer))
    return search(model, calls)


def search[State: Hashable, Request: Hashable, Answer: Hashable](
    model: Model[State, Request, Answer], calls: Sequence[TimedCall[Request, Answer]]
) -> str | None:
    """Say at which call the search for an order ends; None where it finds one."""
    # A situation is a state, and the calls that were applied and have not ended.
    situations = {(model.initial, frozenset[int]())}
    begun: set[int] = set()
    answered = sorted((c.began, n) for n, c in enumerate(calls) if c.answer is not UNKNOWN)
    for at, is_end, number in sorted(moments(calls)):
        if not is_end:
            begun.add(number)
            continue
        ending = calls[number]
        # The state has to lead to its answer, and to that of a call that begins when it has ended.
        following = answered[bisect_right(answered, (at, len(calls))) :][:1]
        named = [ending, *(calls[later] for _, later in following)]
        goals = [one.answer for one in named if one.answer is not UNKNOWN]
        seen, left, found = set(situations), list(situations), set()
        while left:
            state, applied = left.pop()
            if number in applied:
                found.add((state, applied - {number}))
                continue
            for other in begun - applied:
                after, answer = model.apply(state, calls[other].request)
                if calls[other].answer not in (UNKNOWN, answer):
                    continue
                if not all(model.may_lead_to(after, goal) for goal in goals):
                    continue
                if (situation := (after, applied | {other})) not in seen:
                    seen.add(situation)
                    left.append(situation)
        if not found:
            before = " or ".join(sorted(str(state) for state, _ in situations)[:3])
            what = ", and then ".join(map(str, named))
            return f"no order explains {what}; before that the state was {before}"
        situations = found
        begun.remove(number)
    return None


def moments(calls: Sequence[TimedCall[Hashable, Hashable]]) -> Iterator[tuple[float, bool, int]]:
    """Yield the beginnings and ends of calls; sorted, beginnings come first where they tie."""
    for number, call in enumerate(calls):
        yield call.began, False, number
        if call.ended is not None:
            yield call.ended, True, number

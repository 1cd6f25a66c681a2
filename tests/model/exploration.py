"""Walk over every situation that can come about, breadth first, and judge each of them."""

from collections import deque
from dataclasses import dataclass

from tests.model.protocol import Protocol
from tests.model.situation import MESSAGES, Situation


@dataclass(frozen=True, slots=True)
class Explored:
    """What was found: how many situations and steps there are, and the way to a broken promise."""

    situations: int
    steps: int
    ends: int
    broken: str | None = None
    way: tuple[str, ...] = ()


def explore(protocol: Protocol, begin: Situation, situations_max: int) -> Explored:
    """Visit every situation once; stops at the first that breaks a promise.

    Raises ValueError where there are more than `situations_max`.
    """
    came_from: dict[Situation, tuple[str, Situation] | None] = {begin: None}
    waiting = deque([begin])
    steps = ends = 0
    while waiting:
        now = waiting.popleft()
        following = list(protocol.next(now))
        steps += len(following)
        ends += now.is_over and not following
        broken = broken_in(protocol, now, is_end=not following)
        if broken is not None:
            return Explored(len(came_from), steps, ends, broken, way_to(now, came_from))
        for name, after in following:
            if after not in came_from:
                came_from[after] = (name, now)
                waiting.append(after)
        if len(came_from) > situations_max:
            raise ValueError(f"more than {situations_max} situations")
    return Explored(len(came_from), steps, ends)


def way_to(
    end: Situation, came_from: dict[Situation, tuple[str, Situation] | None]
) -> tuple[str, ...]:
    """The shortest way to a situation, as the names of its steps."""
    way: list[str] = []
    step = came_from[end]
    while step is not None:
        way.append(step[0])
        step = came_from[step[1]]
    return tuple(reversed(way))


def broken_in(protocol: Protocol, now: Situation, *, is_end: bool) -> str | None:
    """Which promise a situation breaks."""
    summary = protocol.summary(now.journal)
    kept = {*summary.done, *summary.claimed, *now.parked, *now.queues[0], *now.queues[1]}
    if len(kept) < len(MESSAGES):
        return "no loss"
    if summary.done != tuple(range(len(summary.done))):
        return "once and in order"
    if not set(now.sent) <= set(summary.outputs):
        return "no ghosts"
    if now.sent != summary.outputs[: len(now.sent)]:
        return "outputs in order"
    is_good = len(summary.done) == len(MESSAGES) and now.sent == summary.outputs
    if is_end and not (now.is_over and is_good):
        return "a good end"
    return None

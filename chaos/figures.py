"""Numbers of a run: effects over time, how long each message took, how many were on their way."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from chaos.judge.history import History
from chaos.timeline import Timeline

# The picture has about so many places for bars.
BINS_MAX = 240


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the sender's being told to the first effect that came out anywhere."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What the picture draws, in bins of `step` seconds since the run began.

    `rates` are effects a second by region, `latencies` those of the messages accepted in a bin,
    None where there were none, and `pending` accepted messages without an effect at its end.
    """

    step: float
    rates: Mapping[str, Sequence[float]]
    latencies: Sequence[Latency | None]
    pending: Sequence[int]
    overall: Latency | None


def figures(history: History, timeline: Timeline) -> Figures:
    """Count what came out when."""
    begin, seconds = timeline.begin, timeline.end - timeline.begin
    step = float(max(1, ceil(seconds / BINS_MAX)))
    bins = ceil(seconds / step) or 1
    arrived = first_arrivals(history)
    rates = {region: [0.0] * bins for region in history.regions}
    for (region, _), at in arrived.items():
        rates[region][place(at - begin, step, bins)] += 1 / step
    accepted, visible = accepted_and_visible(history, arrived)
    taken: list[list[float]] = [[] for _ in range(bins)]
    for name, at in visible.items():
        taken[place(accepted[name] - begin, step, bins)].append(max(0.0, at - accepted[name]))
    return Figures(
        step=step,
        rates=rates,
        latencies=[latency(times) for times in taken],
        pending=pending(accepted.values(), visible.values(), begin, step, bins),
        overall=latency([one for times in taken for one in times]),
    )


def first_arrivals(history: History) -> dict[tuple[str, str], float]:
    """When each message's effect came out of each region first."""
    first: dict[tuple[str, str], float] = {}
    for seen in history.seen:
        copy = (seen.region, seen.id)
        first[copy] = min(seen.at, first.get(copy, seen.at))
    return first


def accepted_and_visible(
    history: History, arrived: Mapping[tuple[str, str], float]
) -> tuple[dict[str, float], dict[str, float]]:
    """When each message was accepted, and when its effect was visible somewhere, by id."""
    accepted = {
        sent.id: sent.safe_at
        for sent in history.sent
        if sent.safe_at is not None and not sent.is_poisoned
    }
    visible: dict[str, float] = {}
    for (_, name), at in arrived.items():
        if name in accepted:
            visible[name] = min(at, visible.get(name, at))
    return accepted, visible


def pending(
    accepted: Iterable[float], visible: Iterable[float], begin: float, step: float, bins: int
) -> list[int]:
    """How many messages were accepted and had no effect yet, at the end of each bin."""
    change = [0] * bins
    for at in accepted:
        change[place(at - begin, step, bins)] += 1
    for at in visible:
        change[place(at - begin, step, bins)] -= 1
    total, totals = 0, []
    for one in change:
        total += one
        totals.append(max(0, total))
    return totals


def latency(times: Sequence[float]) -> Latency | None:
    """Median and 99th percentile; None of nothing."""
    if not times:
        return None
    ordered = sorted(times)
    return Latency(quantile(ordered, 0.50), quantile(ordered, 0.99))


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that so large a part of all is not above."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]


def place(seconds: float, step: float, bins: int) -> int:
    """The bin of a moment."""
    return min(max(0, int(seconds / step)), bins - 1)

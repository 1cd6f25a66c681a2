"""A run over time: phases, faults and queues as recorded, effects and latencies as counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from pathlib import Path
from typing import Any

from proof.chaos.checker.history import RunHistory
from proof.chaos.progress import FaultInterval
from proof.chaos.records import read_lines
from proof.testbed.sampling import RunEvent, count_in_bins, find_bin


@dataclass(frozen=True, slots=True)
class PhaseInterval:
    """A phase of the run, from when to when, in seconds since the epoch."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """The course of a run; every time is in seconds since the epoch, `waiting` by region."""

    phases: tuple[PhaseInterval, ...]
    faults: tuple[FaultInterval, ...]
    waiting: Mapping[str, tuple[tuple[float, int], ...]]
    events: tuple[RunEvent, ...]

    @property
    def begin(self) -> float:
        return self.phases[0].begin

    @property
    def end(self) -> float:
        return self.phases[-1].end


def read_timeline(path: Path) -> RunTimeline:
    """Read the events of a run; raises ValueError where there are none."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in read_lines(path):
        by_kind.setdefault(line.pop("kind"), []).append(line)
    if not by_kind.get("phase"):
        raise ValueError(f"{path} holds no run")
    noted = [line["at"] for kind in ("event", "sample") for line in by_kind.get(kind, [])]
    begun = by_kind["phase"]
    ends = [*(line["at"] for line in begun[1:]), max(noted)]
    phases = (PhaseInterval(b["phase"], b["at"], end) for b, end in zip(begun, ends, strict=True))
    waiting: dict[str, list[tuple[float, int]]] = {}
    for line in by_kind.get("sample", []):
        for region, count in line["waiting"].items():
            waiting.setdefault(region, []).append((line["at"], count))
    return RunTimeline(
        phases=tuple(phases),
        faults=tuple(FaultInterval(**line) for line in by_kind.get("fault", [])),
        waiting={region: tuple(points) for region, points in waiting.items()},
        events=tuple(RunEvent(**line) for line in by_kind.get("event", [])),
    )


# The chart has room for about so many bars.
BINS_MAX = 240


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the sender's being told that a message is safe to its first effect anywhere."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The content of the chart, in bins of `step` seconds since the run began.

    `rates` are effects a second by region, `latencies` those of the messages accepted in a bin,
    None where there were none, and `pending` accepted messages without an effect at its end.
    """

    step: float
    rates: Mapping[str, Sequence[float]]
    latencies: Sequence[Latency | None]
    pending: Sequence[int]
    overall: Latency | None


def compute_figures(history: RunHistory, timeline: RunTimeline) -> RunFigures:
    begin, seconds = timeline.begin, timeline.end - timeline.begin
    step = float(max(1, ceil(seconds / BINS_MAX)))
    bins = ceil(seconds / step) or 1
    arrived: dict[tuple[str, str], float] = {}
    for seen in history.seen:
        copy = (seen.region, seen.id)
        arrived[copy] = min(seen.at, arrived.get(copy, seen.at))
    accepted = {
        sent.id: sent.safe_at
        for sent in history.sent
        if sent.safe_at is not None and not sent.is_poisoned
    }
    visible: dict[str, float] = {}
    for (_, name), at in arrived.items():
        if name in accepted:
            visible[name] = min(at, visible.get(name, at))
    waits: list[list[float]] = [[] for _ in range(bins)]
    for name, at in visible.items():
        wait = max(0.0, at - accepted[name])
        waits[find_bin(accepted[name] - begin, bins, step)].append(wait)
    changes = [*((at - begin, 1) for at in accepted.values())]
    changes += ((at - begin, -1) for at in visible.values())
    return RunFigures(
        step=step,
        rates={
            region: count_in_bins(
                ((at - begin, 1 / step) for (of, _), at in arrived.items() if of == region),
                bins,
                step,
            )
            for region in history.regions
        },
        latencies=[summarize(found) for found in waits],
        pending=[max(0, round(n)) for n in accumulate(count_in_bins(changes, bins, step))],
        overall=summarize([wait for found in waits for wait in found]),
    )


def summarize(waits: Sequence[float]) -> Latency | None:
    """Return median and 99th percentile, each the smallest value that so many are not above."""
    if not waits:
        return None
    ordered = sorted(waits)
    p50, p99 = (ordered[max(0, ceil(part * len(ordered)) - 1)] for part in (0.50, 0.99))
    return Latency(p50, p99)

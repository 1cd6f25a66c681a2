"""From an outcome to what the chart draws: effects by second, backlog, and the outage."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor

from demo.chart import Picture
from demo.outcome import Outcome
from demo.samples import Sample, Timeline

MARGIN_SECONDS = 3.0


def picture_of(outcome: Outcome) -> Picture:
    """Return the picture of a run: of its effects, or of settled copies when it added none."""
    timeline = outcome.timeline
    rates = effects_by_second(outcome) if outcome.added else settled_by_second(timeline)
    begin, end = active_span(timeline)
    effects, copies = "effects a second", "copies settled a second (no effect was added)"
    return Picture(
        title=f"{effects if outcome.added else copies}, by region",
        begin=begin,
        end=end,
        rates=rates,
        backlog={name: backlog(timeline, name) for name in timeline.samples[0].regions},
        outage=outage_span(outcome),
        primary=next(iter(timeline.samples[0].regions)),
    )


def effects_by_second(outcome: Outcome) -> Mapping[str, Sequence[float]]:
    """Count the effects of each region in each second, by the journal's own time."""
    rates = empty_rates(outcome.timeline)
    for entry in outcome.added:
        # The store cuts its time off to seconds; the middle of that second is the best guess.
        second = floor(outcome.timeline.seconds(entry.at + 0.5))
        if entry.region in rates and 0 <= second < len(rates[entry.region]):
            rates[entry.region][second] += len(entry.covers)
    return rates


def settled_by_second(timeline: Timeline) -> Mapping[str, Sequence[float]]:
    """Count the deliveries each region completed in each second, by the samples."""
    rates = empty_rates(timeline)
    for before, after in pairwise(timeline.samples):
        second = floor(timeline.seconds(after.at))
        for name, region in after.regions.items():
            rates[name][second] += region.settled - before.regions[name].settled
    return rates


def empty_rates(timeline: Timeline) -> dict[str, list[float]]:
    """Return a nought for each region and second of the run."""
    seconds = ceil(timeline.seconds(timeline.samples[-1].at)) + 1
    return {name: [0.0] * seconds for name in timeline.samples[0].regions}


def backlog(timeline: Timeline, region: str) -> Sequence[tuple[float, float]]:
    """Return how many messages waited in a region's queue at each sample."""
    return [
        (timeline.seconds(sample.at), sample.regions[region].waiting) for sample in timeline.samples
    ]


def active_span(timeline: Timeline) -> tuple[float, float]:
    """Return from when to when anything moved, with a margin on both sides."""
    moves = [after for before, after in pairwise(timeline.samples) if moved(before, after)]
    shown = moves or timeline.samples
    begin = timeline.seconds(shown[0].at) - MARGIN_SECONDS
    return max(0.0, begin), timeline.seconds(shown[-1].at) + MARGIN_SECONDS


def outage_span(outcome: Outcome) -> tuple[float, float] | None:
    """Return from when to when the primary was gone."""
    if outcome.outage is None:
        return None
    killed, back = outcome.outage.killed_at, outcome.outage.recovered_at
    return outcome.timeline.seconds(killed), outcome.timeline.seconds(back)


def moved(before: Sample, after: Sample) -> bool:
    """Whether anything was sent, delivered or settled between two samples."""
    return (before.settled, before.outstanding) != (after.settled, after.outstanding)

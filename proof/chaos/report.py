"""The report of a run as one HTML page and as lines: what was broken, above what came out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proof.chaos.checker.history import RunHistory
from proof.chaos.checker.promises import PromiseResult
from proof.chaos.figures import RunFigures, RunTimeline, compute_figures
from proof.chaos.options import ChaosOptions
from proof.chaos.plan import OutageKind
from proof.chaos.progress import FaultInterval
from proof.testbed import charts
from proof.testbed.charts import COLOURS, REGION_COLOURS, add_legend, draw_chart
from proof.testbed.pages import TERMS as TERMS_OF_ALL
from proof.testbed.pages import ReportPage, ReportRow
from proof.testbed.sampling import format_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTAGES = frozenset(map(str, OutageKind))
CHART_PIXELS, LANE_PIXELS, PANEL_PIXELS = 1120, 19, 92
# The text of a fault has so many pixels a letter.
LETTER_PIXELS = 6.2
VISIBLE_PIXELS = 2.0
TERMS = {
    **{word: TERMS_OF_ALL[word] for word in ("session", "effect", "copy")},
    "accepted": "the sender was told that the message is safe",
    "outage": "something was taken away: a process, a namespace, a region, the sender",
    "degradation": "some calls were refused, delayed, not answered, or got an old answer",
    "violation": "something that a promise rules out: a message lost, an effect twice, and so on",
    "recovery, draining": "the faults are over; then nothing more is sent",
}


@dataclass(frozen=True)
class ChaosReport:
    options: ChaosOptions
    history: RunHistory
    timeline: RunTimeline
    results: Sequence[PromiseResult]

    @cached_property
    def figures(self) -> RunFigures:
        return compute_figures(self.history, self.timeline)

    @property
    def violations(self) -> int:
        return sum(result.violations for result in self.results)

    @property
    def outages(self) -> set[tuple[str, float]]:
        """The outages by kind and beginning, each once where it struck several components."""
        return {(fault.what, fault.begin) for fault in self.timeline.faults if is_outage(fault)}

    @property
    def degradations(self) -> list[FaultInterval]:
        return [fault for fault in self.timeline.faults if not is_outage(fault)]

    def rows(self) -> list[ReportRow]:
        history, timeline = self.history, self.timeline
        safe = [sent for sent in history.sent if sent.is_safe]
        sessions = len({sent.session for sent in safe})
        runs = f"{len(history.runs)} for {len({run.id for run in history.runs})} messages"
        degradations = count_words(fault.what.split()[0] for fault in self.degradations)
        rows = [
            ReportRow("messages accepted", f"{len(safe)} in {sessions} sessions"),
            ReportRow("effects", f"{len(history.copies)}, {len(history.seen)} copies sent"),
            ReportRow("runs of effectful handlers", runs),
            ReportRow("outages", count_words(what for what, _ in self.outages)),
            ReportRow("degradations", degradations),
        ]
        if self.figures.overall:
            p50, p99 = self.figures.overall.p50, self.figures.overall.p99
            latency = f"median {p50:.2f} s, 99th {p99:.1f} s"
            rows.append(ReportRow("accepted to effect visible", latency))
        return [*rows, ReportRow("duration", f"{timeline.end - timeline.begin:.0f} s")]

    def print(self, console: Console) -> None:
        figures = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for row in self.rows():
            figures.add_row(row.label, row.value)
        console.print()
        console.print(figures)
        console.print()
        for result in self.results:
            if result.violations:
                line = Text(f"BROKEN  {result}", style="bold red")
            else:
                line = Text.assemble(("ok", "green"), f"  {result}")
            console.print(line, soft_wrap=True)
        console.print()
        if not self.violations:
            console.print(Text("every promise held", style="bold green"))
        console.print(f"report: {self.options.report}", soft_wrap=True)

    def page(self) -> ReportPage:
        overall, begin = self.figures.overall, self.timeline.begin
        promises = []
        for result in self.results:
            checked = f"checked {result.checked} {result.promise.of}"
            value = "; ".join((f"{checked}, {result.violations} violations", *result.examples))
            name = f"{result.promise.name} {result.promise.summary}"
            promises.append(ReportRow(name, value, is_good=not result.violations))
        events = [
            ReportRow(format_time(event.at), f"{event.at - begin:.1f} s  {event.text}")
            for event in self.timeline.events
        ]
        return ReportPage(
            title="Lockstep under injected faults",
            story="Many senders sent messages to two regions on this machine while processes were"
            " killed, services were refused, slowed or silenced, and regions were taken away, as a"
            " seed decides. Then every message's end was read back and each promise was checked."
            " The sweep, compaction, leases and the waits for gaps are shorter than the product's"
            " defaults, so that much happens in little time (proof/chaos/processes.py).",
            started_at=begin,
            problems=[],
            is_good=not self.violations,
            tiles={
                "messages accepted": str(sum(sent.is_safe for sent in self.history.sent)),
                "violations": str(self.violations),
                "outages": str(len(self.outages)),
                "degradations": str(len(self.degradations)),
                "median to effect": f"{overall.p50:.2f} s" if overall else "none",
                "99th percentile": f"{overall.p99:.1f} s" if overall else "none",
            },
            terms=TERMS,
            chart=draw_run(self.timeline, self.figures),
            sections={
                "Promises": promises,
                "This run": [*describe_options(self.options), *self.rows()],
                "What happened": events,
            },
        )


def is_outage(fault: FaultInterval) -> bool:
    return fault.what in OUTAGES


def count_words(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common()) or "nothing"


def describe_options(options: ChaosOptions) -> list[ReportRow]:
    asked = f"{options.messages} messages" if options.messages else f"{options.seconds:g} s"
    limits = f"{options.rate:g} messages a second, {options.operation_max} at once"
    seed = f"{options.seed}; the same seed plans the same faults and workload"
    return [
        ReportRow("seed", seed),
        ReportRow("asked for", asked),
        ReportRow("at most", limits),
        ReportRow("pauses between faults", f"{options.pause_factor:g} times the usual ones"),
        ReportRow("calls of a session at once", f"{options.calls}"),
    ]


def draw_run(timeline: RunTimeline, figures: RunFigures) -> str:
    lanes = order_lanes(timeline.faults, tuple(figures.rates))
    regions = tuple(figures.rates)
    seconds = timeline.end - timeline.begin
    heights = [LANE_PIXELS * max(3, len(lanes)), *[PANEL_PIXELS] * (len(regions) + 2)]
    title = "injected faults by component, above what came out of each region"
    with draw_chart(title, heights=heights, end=seconds, width=CHART_PIXELS) as chart:
        faults, *effects, latency, backlog = chart.panels
        draw_faults(faults, timeline, lanes)
        for panel in chart.panels:
            for phase in timeline.phases[::2]:
                span = (phase.begin - timeline.begin, phase.end - timeline.begin)
                panel.axvspan(*span, color=COLOURS["phase"], alpha=0.04, linewidth=0)
        highest = max((max(rates) for rates in figures.rates.values()), default=0)
        for number, (panel, region) in enumerate(zip(effects, regions, strict=True)):
            panel.set_title(f"effects a second, out of {region}")
            panel.set_ylabel("messages / s")
            rates, colours = {region: figures.rates[region]}, [REGION_COLOURS[number]]
            kinds, step, unit = [f"region{number}"], figures.step, "effects a second"
            charts.draw_stacked_bars(panel, rates, colours, unit=unit, kinds=kinds, step=step)
            panel.set_ylim(0, max(1.0, highest * 1.05))
            add_legend(panel)
        draw_latencies(latency, figures)
        draw_backlog(backlog, timeline, figures)
    return chart.svg


def order_lanes(
    faults: Sequence[FaultInterval], regions: tuple[str, ...]
) -> list[tuple[str, bool]]:
    """Return the lanes from above, by component and whether it was taken away or degraded.

    Who sends comes first, then what carries, who works, and what remembers.
    """
    known = ["sender", "cloud", *(f"host {name}" for name in regions)]
    known += [*(f"servicebus.{name}" for name in regions), "cosmos.journal"]
    found = {(fault.component, is_outage(fault)) for fault in faults}
    others = sorted({component for component, _ in found} - set(known))
    lanes = [(name, kind) for name in known + others for kind in (True, False)]
    return [lane for lane in lanes if lane in found]


def draw_faults(panel: "Axes", timeline: RunTimeline, lanes: Sequence[tuple[str, bool]]) -> None:
    panel.set_title("injected faults, by component")
    for phase in timeline.phases:
        panel.annotate(
            phase.name,
            (phase.begin - timeline.begin, 1.0),
            (3, -2),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            color=COLOURS["soft"],
        )
    pixels_per_second = (CHART_PIXELS - 150) / (timeline.end - timeline.begin)
    for lane, (component, is_removed) in enumerate(lanes):
        kind = "removed" if is_removed else "degraded"
        for fault in timeline.faults:
            if (fault.component, is_outage(fault)) != (component, is_removed):
                continue
            begin, length = fault.begin - timeline.begin, fault.end - fault.begin
            colour, alpha = COLOURS[kind], 1.0 if is_removed else 0.5
            width = max(length, VISIBLE_PIXELS / pixels_per_second)
            (bar,) = panel.barh(lane, width, left=begin, height=0.72, color=colour, alpha=alpha)
            charts.label_artist(bar, kind, f"{fault.what}, from {begin:.1f} s for {length:.1f} s")
            at = find_place(fault, timeline, pixels_per_second)
            if at is not None:
                text_colour = COLOURS["page" if is_removed and at == begin else "text"]
                panel.text(at, lane, f" {fault.what}", va="center", fontsize=9, color=text_colour)
    panel.set_yticks(range(len(lanes)), [component for component, _ in lanes])
    panel.set_ylim(len(lanes) - 0.5, -1.5)
    for kind, name, alpha in (("removed", "taken away", 1.0), ("degraded", "degraded", 0.5)):
        panel.barh([0], [0], color=COLOURS[kind], alpha=alpha, label=name)
    add_legend(panel)


def find_place(
    fault: FaultInterval, timeline: RunTimeline, pixels_per_second: float
) -> float | None:
    """Return where the name of a fault is written whole: in its bar, behind it, or not at all."""
    others = (one for one in timeline.faults if one.component == fault.component)
    free = min((one.begin for one in others if one.begin > fault.begin), default=timeline.end)
    needed = (len(fault.what) + 2) * LETTER_PIXELS / pixels_per_second
    for begin, end in ((fault.begin, fault.end), (fault.end, free)):
        if end - begin >= needed:
            return begin - timeline.begin
    return None


def draw_latencies(panel: "Axes", figures: RunFigures) -> None:
    panel.set_title("from accepted to effect visible, by time of sending")
    panel.set_ylabel("seconds")
    panel.set_yscale("log")
    panel.set_ylim(0.01, 100)
    panel.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    panel.minorticks_off()
    found = [
        ((place + 0.5) * figures.step, latency)
        for place, latency in enumerate(figures.latencies)
        if latency is not None
    ]
    times = [at for at, _ in found]
    for name, label in (("p99", "99th percentile"), ("p50", "median")):
        values = [min(max(getattr(latency, name), 0.01), 100.0) for _, latency in found]
        panel.plot(times, values, "o", markersize=3.5, color=COLOURS[name], label=label)
    add_legend(panel)


def draw_backlog(panel: "Axes", timeline: RunTimeline, figures: RunFigures) -> None:
    panel.set_title("messages under way")
    panel.set_ylabel("messages")
    pending, colours = {"accepted, no effect yet": figures.pending}, [COLOURS["pending"]]
    kinds, step = ["pending"], figures.step
    charts.draw_stacked_bars(panel, pending, colours, unit="messages", kinds=kinds, step=step)
    for colour, (region, waiting) in zip(REGION_COLOURS, timeline.waiting.items(), strict=False):
        points = [(at - timeline.begin, count) for at, count in waiting if at >= timeline.begin]
        panel.plot(*zip(*points, strict=True), color=colour, label=f"waiting in {region}")
    panel.set_ylim(bottom=0)
    add_legend(panel)

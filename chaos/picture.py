"""The picture of a run as inline SVG: what was broken, above what came out, on one clock.

Plain text in, plain text out; colours come from the classes of the page around it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from chaos.course import Bar
from chaos.figures import Figures, Latency
from chaos.plan import Blow
from chaos.timeline import Timeline
from demo.chart import TICK_SECONDS, Scale, label, rounded_up

WIDTH, LEFT, RIGHT = 1120, 118, 14
TOP, LANE, GAP = 26, 17, 34
PANEL = 92
TICKS = 2
# Latency has a logarithmic scale between these, in seconds.
FASTEST, SLOWEST = 0.01, 100.0
# A letter of a bar's text takes about so much.
LETTER = 5.6
BLOWS = frozenset(map(str, Blow))
KINDS = ("blow", "squall")


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture: what was taken away from a component, or what was spoiled of it."""

    component: str
    kind: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the picture: where it is, and its scale from values to heights."""

    top: float
    title: str
    upward: Scale

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + PANEL


def draw(timeline: Timeline, figures: Figures) -> str:
    """Draw the picture as one SVG element."""
    across = Scale(0.0, timeline.end - timeline.begin, LEFT, WIDTH - RIGHT)
    lanes = lanes_of(timeline.bars, tuple(figures.rates))
    under_lanes = TOP + LANE * len(lanes) + GAP
    tops = [under_lanes + n * (PANEL + GAP) for n in range(len(figures.rates) + 2)]
    bottom = tops[-1] + PANEL
    height = bottom + 30
    parts = [
        *phases(timeline, across, bottom),
        *bars(timeline, lanes, across),
        *effects(figures, tops, across),
        *latency(figures, tops[-2], across),
        *backlog(timeline, figures, tops[-1], across),
        *clock_axis(timeline.end - timeline.begin, across, bottom + 18),
    ]
    box = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Faults against effects"'
    return f"<svg {box}>\n" + "\n".join(parts) + "\n</svg>"


def lanes_of(found: Sequence[Bar], regions: tuple[str, ...]) -> list[Lane]:
    """The lanes from above: who sends, what carries, who works, what remembers.

    What is taken away from a component is above what is spoiled of it.
    """
    known = ["sender", "cloud", *(f"host {name}" for name in regions)]
    known += [*(f"servicebus.{name}" for name in regions), "cosmos.journal"]
    others = sorted({bar.component for bar in found} - set(known))
    lanes = [Lane(name, kind) for name in known + others for kind in KINDS]
    struck = {Lane(bar.component, kind_of(bar)) for bar in found}
    return [lane for lane in lanes if lane in struck]


def kind_of(bar: Bar) -> str:
    """Whether something was taken away, or spoiled."""
    return "blow" if bar.what in BLOWS else "squall"


def phases(timeline: Timeline, across: Scale, bottom: float) -> Iterator[str]:
    """Shade the phases behind everything, and name them above."""
    for number, phase in enumerate(timeline.phases):
        left, right = (across(at - timeline.begin) for at in (phase.begin, phase.end))
        size = f'width="{right - left:.1f}" height="{bottom - TOP + 6:.1f}"'
        yield f'<rect class="phase{number % 2}" x="{left}" y="{TOP - 6}" {size}/>'
        if right - left > LETTER * len(phase.name):
            yield label(left + 3, TOP - 11, phase.name, "heading")


def bars(timeline: Timeline, lanes: Sequence[Lane], across: Scale) -> Iterator[str]:
    """Draw the lanes, each with what was wrong."""
    named = set()
    for number, lane in enumerate(lanes):
        y = TOP + number * LANE
        if lane.component not in named:
            named.add(lane.component)
            yield rule(y)
            yield label(LEFT - 8, y + 12, lane.component, "tick", "end")
        for bar in timeline.bars:
            if lane == Lane(bar.component, kind_of(bar)):
                yield from drawn(bar, y + 2, across, timeline.begin)


def drawn(bar: Bar, y: float, across: Scale, begin: float) -> Iterator[str]:
    """Draw one bar, with its text where there is room."""
    left, right = across(bar.begin - begin), across(bar.end - begin)
    kind = kind_of(bar)
    told = f"{bar.what}, from {bar.begin - begin:.1f} s for {bar.end - bar.begin:.1f} s"
    place = f'x="{left}" y="{y}" width="{max(2.0, right - left):.1f}" height="{LANE - 4}"'
    yield f'<rect class="{kind}" rx="2" {place}><title>{escape(told)}</title></rect>'
    letters = int((right - left - 6) / LETTER)
    if letters >= 5:
        text = bar.what if len(bar.what) <= letters else bar.what[: letters - 1] + "…"
        yield label(left + 3, y + 10, text, f"on-{kind}")


def effects(figures: Figures, tops: Sequence[float], across: Scale) -> Iterator[str]:
    """Draw effects a second, a panel for each region, all with the same scale."""
    high = rounded_up(max((max(rates) for rates in figures.rates.values()), default=0))
    for number, (region, rates) in enumerate(figures.rates.items()):
        top = tops[number]
        panel = Panel(top, f"effects a second, out of {region}", Scale(0, high, top + PANEL, top))
        yield from frame(panel, [high * tick / TICKS for tick in range(TICKS + 1)])
        for place, rate in enumerate(rates):
            if rate:
                yield column(panel, across, figures.step, place, rate, f"region{number}")


def column(panel: Panel, across: Scale, step: float, place: int, value: float, kind: str) -> str:
    """Draw the bar of one bin."""
    left, right = across(place * step), across((place + 1) * step)
    top = panel.upward(value)
    told = f"{value:g} at {place * step:.0f} s"
    return (
        f'<rect class="{kind}" x="{left}" y="{top}" width="{max(0.8, right - left - 0.6):.1f}" '
        f'height="{panel.bottom - top:.1f}"><title>{told}</title></rect>'
    )


def latency(figures: Figures, top: float, across: Scale) -> Iterator[str]:
    """Draw median and 99th percentile of each bin, on a logarithmic scale."""
    panel = Panel(
        top,
        "seconds from accepted to effect visible: median and 99th percentile, by time of sending",
        Scale(log10(FASTEST), log10(SLOWEST), top + PANEL, top),
    )
    yield from frame(
        panel, [], [(log10(value), f"{value:g} s") for value in (0.01, 0.1, 1, 10, 100)]
    )
    for kind in ("p99", "p50"):
        for place, found in enumerate(figures.latencies):
            if found is not None:
                x, y = across((place + 0.5) * figures.step), panel.upward(height_of(found, kind))
                yield f'<circle class="{kind}" cx="{x}" cy="{y}" r="2.2"/>'


def height_of(found: Latency, kind: str) -> float:
    """A latency's place on the logarithmic scale."""
    value = found.p50 if kind == "p50" else found.p99
    return log10(min(max(value, FASTEST), SLOWEST))


def backlog(timeline: Timeline, figures: Figures, top: float, across: Scale) -> Iterator[str]:
    """Draw what was accepted and had no effect yet, and what waited in each region's queue."""
    points = [count for waiting in timeline.waiting.values() for _, count in waiting]
    high = rounded_up(max([*points, *figures.pending], default=0))
    panel = Panel(
        top,
        "messages: accepted without an effect (area), waiting in each region's queue (lines)",
        Scale(0, high, top + PANEL, top),
    )
    yield from frame(panel, [high * tick / TICKS for tick in range(TICKS + 1)])
    for place, count in enumerate(figures.pending):
        if count:
            yield column(panel, across, figures.step, place, count, "pending")
    for number, waiting in enumerate(timeline.waiting.values()):
        path = " ".join(
            f"{across(at - timeline.begin)},{panel.upward(count)}" for at, count in waiting
        )
        yield f'<polyline class="line{number}" points="{path}"/>'


def frame(
    panel: Panel, values: Sequence[float], named: Sequence[tuple[float, str]] = ()
) -> Iterator[str]:
    """Draw the title and the horizontal lines of a panel."""
    yield label(LEFT, panel.top - 8, panel.title, "heading")
    for value, text in [*((value, f"{value:g}") for value in values), *named]:
        y = panel.upward(value)
        yield rule(y)
        yield label(LEFT - 8, y + 4, text, "tick", "end")


def rule(y: float) -> str:
    """Draw a thin line across everything."""
    return f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'


def clock_axis(seconds: float, across: Scale, y: float) -> Iterator[str]:
    """Write the seconds below; they go for everything."""
    step = next((step for step in TICK_SECONDS if step >= seconds / 14), TICK_SECONDS[-1])
    for at in range(0, floor(seconds) + 1, ceil(step)):
        yield label(across(at), y, f"{at} s", "tick", "middle")

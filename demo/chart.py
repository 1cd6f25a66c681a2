"""The picture of a failover as inline SVG: bars of effects by region, backlog below, one clock.

Plain text in, plain text out; colours come from the classes of the page around it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, LEFT, RIGHT = 960, 52, 14
BARS_TOP, BARS_BOTTOM = 46, 276
BACKLOG_TOP, BACKLOG_BOTTOM = 318, 418
HEIGHT = 446
TICKS = 4
TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800)


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to draw; every time is in seconds since the run began.

    `rates` holds one number per region and second from second 0; `backlog` holds points.
    """

    title: str
    begin: float
    end: float
    rates: Mapping[str, Sequence[float]]
    backlog: Mapping[str, Sequence[tuple[float, float]]]
    outage: tuple[float, float] | None
    primary: str


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values to places on the page."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        part = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + part * (self.stop - self.start), 1)


def draw(picture: Picture) -> str:
    """Draw the picture as one SVG element."""
    across = Scale(picture.begin, picture.end, LEFT, WIDTH - RIGHT)
    totals = [sum(rates) for rates in zip(*picture.rates.values(), strict=True)]
    bars_high = rounded_up(max(totals, default=0))
    waiting = [count for points in picture.backlog.values() for _, count in points]
    backlog_high = rounded_up(max(waiting, default=0))
    upward = Scale(0, bars_high, BARS_BOTTOM, BARS_TOP)
    backlog_upward = Scale(0, backlog_high, BACKLOG_BOTTOM, BACKLOG_TOP)
    parts = [
        *outage_shade(picture, across),
        *grid(upward, bars_high),
        *grid(backlog_upward, backlog_high),
        *clock_axis(picture, across),
        *bars(picture, across, upward),
        *backlog_lines(picture, across, backlog_upward),
        *outage_marks(picture, across),
        label(LEFT, BARS_TOP - 28, picture.title, "heading"),
        label(LEFT, BACKLOG_TOP - 14, "messages waiting in the queue of each region", "heading"),
    ]
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(picture.title)}"'
    return f"<svg {box}>\n" + "\n".join(parts) + "\n</svg>"


def bars(picture: Picture, across: Scale, upward: Scale) -> Iterator[str]:
    """Draw one stack for each second, a part for each region."""
    for second in range(max(0, floor(picture.begin)), ceil(picture.end)):
        left = max(across(second), LEFT)
        width = max(1.0, min(across(second + 1), WIDTH - RIGHT) - left - 1)
        base = 0.0
        for index, (region, rates) in enumerate(picture.rates.items()):
            rate = rates[second] if second < len(rates) else 0
            if rate:
                top, height = upward(base + rate), upward(base) - upward(base + rate)
                told = f"{region}: {rate:g} in second {second}"
                yield (
                    f'<rect class="region{index}" x="{left}" y="{top}" width="{width:.1f}" '
                    f'height="{height:.1f}"><title>{escape(told)}</title></rect>'
                )
            base += rate


def backlog_lines(picture: Picture, across: Scale, upward: Scale) -> Iterator[str]:
    """Draw a line for each region."""
    for index, points in enumerate(picture.backlog.values()):
        inside = (point for point in points if picture.begin <= point[0] <= picture.end)
        path = " ".join(f"{across(at)},{upward(count)}" for at, count in inside)
        yield f'<polyline class="line{index}" points="{path}"/>'


def outage_shade(picture: Picture, across: Scale) -> Iterator[str]:
    """Shade the time for which the primary was gone."""
    if picture.outage is None:
        return
    left, right = (across(at) for at in picture.outage)
    for top, bottom in ((BARS_TOP, BARS_BOTTOM), (BACKLOG_TOP, BACKLOG_BOTTOM)):
        place = f'x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top}"'
        yield f'<rect class="outage" {place}/>'


def outage_marks(picture: Picture, across: Scale) -> Iterator[str]:
    """Mark the kill and the recovery."""
    if picture.outage is None:
        return
    killed, back = picture.outage
    turns = (
        (killed, f"{picture.primary} killed", "end"),
        (back, f"{picture.primary} back", "start"),
    )
    for at, text, anchor in turns:
        x = across(at)
        for top, bottom in ((BARS_TOP - 18, BARS_BOTTOM), (BACKLOG_TOP, BACKLOG_BOTTOM)):
            yield f'<line class="mark" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>'
        side = -5 if anchor == "end" else 5
        yield label(x + side, BARS_TOP - 7, f"{text} at {at:.0f} s", "turn", anchor)


def grid(upward: Scale, high: float) -> Iterator[str]:
    """Draw horizontal lines with their values."""
    for tick in range(TICKS + 1):
        value = high * tick / TICKS
        y = upward(value)
        yield f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>'
        yield label(LEFT - 8, y + 4, f"{value:g}", "tick", "end")


def clock_axis(picture: Picture, across: Scale) -> Iterator[str]:
    """Write the seconds under the lower panel; they go for both."""
    wanted = (picture.end - picture.begin) / 12
    step = next((step for step in TICK_SECONDS if step >= wanted), TICK_SECONDS[-1])
    first = ceil(picture.begin / step) * step
    for at in range(first, floor(picture.end) + 1, step):
        yield label(across(at), BACKLOG_BOTTOM + 20, f"{at} s", "tick", "middle")


def label(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    """Write a text."""
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def rounded_up(value: float) -> float:
    """Return the next value that divides nicely into TICKS parts."""
    if value <= TICKS:
        return float(TICKS)
    magnitude = 10 ** floor(log10(value))
    steps = (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10)
    return float(next(step for step in steps if step * magnitude >= value) * magnitude)

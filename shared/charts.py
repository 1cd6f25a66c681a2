"""Charts over time as inline SVG, for the operations page and for reports of runs.

Colours are variables of the page around it, so a chart follows its light or dark theme; where there
is none, those of the light theme hold. The same data gives the same text, byte for byte.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import cycle
from math import ceil, floor, log10

# The variables of a page, and what stands for each where there is no page.
COLOURS = {
    "text": "#1c2430",
    "muted": "#5b6676",
    "rule": "#dfe3e8",
    "region0": "#2f6fdb",
    "region1": "#e08a1e",
    "region2": "#2f9e8f",
    "region3": "#b5507a",
    "region4": "#7a8b2d",
    "good": "#1a7f4b",
    "bad": "#c43131",
    "removed": "#b3261e",
}
REGION_COLOURS = ("region0", "region1", "region2", "region3", "region4")
LEFT, RIGHT, ABOVE, BELOW = 56, 14, 30, 34
STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
LETTER_PIXELS, TICK_PIXELS = 6.6, 70


def paint(colour: str) -> str:
    return f"var(--{colour},{COLOURS[colour]})"


def write_number(value: float) -> str:
    """Return a coordinate or an amount without what says nothing."""
    return f"{value:.1f}".removesuffix(".0")


def write_text(
    x: float, y: float, text: str, *, colour: str = "muted", side: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{write_number(x)}" y="{write_number(y)}" text-anchor="{side}"'
    return f'<text {place}{weight} fill="{paint(colour)}">{escape(text)}</text>'


def find_step(highest: float, lines: int) -> float:
    """Return the distance of grid lines, so that few of them reach the highest value."""
    least = max(highest, 1e-9) / lines
    power = 10.0 ** floor(log10(least))
    return next(one * power for one in (1, 2, 5, 10) if one * power >= least * (1 - 1e-9))


@dataclass(slots=True)
class Panel:
    """A part of a chart with a vertical axis from 0 to `top`; all parts share the horizontal one.

    `names` has the colour of each name that the legend explains.
    """

    chart: "Chart"
    y: float
    height: float
    top: float
    shapes: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    has_grid: bool = True

    def place(self, value: float) -> float:
        return self.y + self.height * (1 - min(value, self.top) / self.top)

    def draw_stack(
        self,
        values: Mapping[str, Sequence[float | None]],
        colours: Sequence[str],
        *,
        unit: str,
        begin: float = 0.0,
        width: float = 1.0,
    ) -> None:
        """Draw a stack of bars for each place of the values, a part for each name.

        Of more names than colours, several have the same. `width` is a place's in seconds, and
        `begin` where the first one begins. None is drawn as 0.
        """
        bases = [0.0] * max(map(len, values.values()), default=0)
        for (name, amounts), colour in zip(values.items(), cycle(colours), strict=False):
            self.names[name] = colour
            for number, amount in enumerate(amounts):
                if not amount:
                    continue
                at = begin + number * width
                low, high = self.place(bases[number]), self.place(bases[number] + amount)
                bases[number] += amount
                left, right = self.chart.place(at), self.chart.place(at + 0.94 * width)
                box = f'x="{left:.2f}" y="{high:.2f}" width="{right - left:.2f}"'
                label = f"{name}: {amount:g} {unit} at {self.chart.write_time(at)}"
                self.shapes.append(
                    f'<rect class="{colour}" {box} height="{low - high:.2f}"'
                    f' fill="{paint(colour)}"><title>{escape(label)}</title></rect>'
                )

    def draw_line(self, name: str, colour: str, points: Sequence[tuple[float, float]]) -> None:
        self.names[name] = colour
        path = " ".join(f"{self.chart.place(at):.2f},{self.place(one):.2f}" for at, one in points)
        style = f'fill="none" stroke="{paint(colour)}" stroke-width="1.5"'
        self.shapes.append(f'<polyline points="{path}" {style}/>')

    def mark_outage(self, begin: float, end: float, label: str) -> None:
        """Shade the time of an outage, and name it in the legend."""
        self.names[label] = "bad"
        left, right = self.chart.place(begin), self.chart.place(end)
        first, last = (self.chart.write_time(round(at)) for at in (begin, end))
        said = escape(f"{label}, from {first} to {last}")
        self.shapes.append(
            f'<rect class="outage" x="{left:.2f}" y="{self.y:.2f}" width="{right - left:.2f}"'
            f' height="{self.height:.2f}" fill="{paint("bad")}" fill-opacity="0.14">'
            f"<title>{said}</title></rect>"
        )
        for at in (begin, end):
            self.mark_time(at, "", "bad")

    def mark_time(
        self, at: float, text: str, colour: str, *, row: int = 0, is_before: bool = False
    ) -> None:
        """Draw a broken line at a time, and a text beside its upper end, so many rows below it."""
        x = self.chart.place(at)
        ends = f'x1="{x:.2f}" x2="{x:.2f}" y1="{self.y:.2f}" y2="{self.y + self.height:.2f}"'
        self.shapes.append(
            f'<line {ends} stroke="{paint(colour)}" stroke-width="1.2" stroke-dasharray="4 3"/>'
        )
        if text:
            side, away = ("end", -5) if is_before else ("start", 5)
            self.shapes.append(
                write_text(x + away, self.y + 12 + 13 * row, text, colour="text", side=side)
            )

    def write(self, title: str) -> str:
        """Return the panel's text: its grid, its shapes, and the legend beside its title."""
        right = self.chart.width - RIGHT
        parts = [write_text(LEFT, self.y - 10, title, colour="text", bold=True)]
        step = find_step(self.top, 4)
        for number in range(int(self.top / step + 1e-9) + 1) if self.has_grid else ():
            y = self.place(number * step)
            ends = f'x1="{LEFT}" x2="{right}" y1="{y:.2f}" y2="{y:.2f}"'
            parts.append(f'<line {ends} stroke="{paint("rule")}"/>')
            parts.append(write_text(LEFT - 6, y + 4, f"{number * step:g}", side="end"))
        parts += self.shapes
        for name, colour in reversed(self.names.items()):
            right -= LETTER_PIXELS * len(name)
            parts.append(write_text(right, self.y - 10, name, colour="text"))
            right -= 15
            box = f'x="{right:.1f}" y="{self.y - 19:.1f}" width="10" height="10"'
            shade = ' fill-opacity="0.3"' if colour == "bad" else ""
            parts.append(f'<rect {box} fill="{paint(colour)}"{shade}/>')
            right -= 12
        return "\n".join(parts)


@dataclass(slots=True)
class Chart:
    """Panels one below the other over the time from `begin` to `end` in seconds.

    `title` is what a screen reader says of the whole chart; `write_time` is what stands at a place
    of the horizontal axis, which is what `since` says.
    """

    title: str
    begin: float
    end: float
    since: str
    width: float = 960
    write_time: Callable[[float], str] = "{:g}".format
    panels: list[tuple[str, Panel]] = field(default_factory=list)
    bottom: float = 0.0

    def place(self, at: float) -> float:
        """Return where a time is, to the edge of the chart at most."""
        share = (at - self.begin) / (self.end - self.begin)
        return LEFT + (self.width - LEFT - RIGHT) * min(1.0, max(0.0, share))

    def add_panel(self, title: str, height: float, highest: float) -> Panel:
        """Add a panel for values up to this one."""
        step = find_step(highest or 1.0, 4)
        top = step * ceil((highest or 1.0) / step - 1e-9)
        panel = Panel(self, self.bottom + ABOVE, height, top)
        self.bottom = panel.y + height
        self.panels.append((title, panel))
        return panel

    def write(self) -> str:
        """Return the chart as an SVG element for a page."""
        parts = [panel.write(title) for title, panel in self.panels]
        seconds = self.end - self.begin
        most = self.width / TICK_PIXELS
        step = next((one for one in STEPS if seconds / one <= most), STEPS[-1])
        for number in range(ceil(self.begin / step), floor(self.end / step) + 1):
            text = self.write_time(number * step)
            # At the edge a text would be cut.
            x = min(self.place(number * step), self.width - LETTER_PIXELS * len(text) / 2)
            parts.append(write_text(x, self.bottom + 15, text, side="middle"))
        middle = (LEFT + self.width - RIGHT) / 2
        parts.append(write_text(middle, self.bottom + 30, self.since, side="middle"))
        title = escape(self.title)
        box = f"0 0 {write_number(self.width)} {write_number(self.bottom + BELOW)}"
        return (
            f'<svg viewBox="{box}" role="img" aria-label="{title}" font-size="11"'
            f' font-family="system-ui, sans-serif"><title>{title}</title>\n'
            + "\n".join(parts)
            + "\n</svg>"
        )


def find_highest(values: Mapping[str, Sequence[float | None]]) -> float:
    """Return the height of the highest stack."""
    stacks = zip(*values.values(), strict=False)
    return max((sum(one or 0.0 for one in stack) for stack in stacks), default=0.0)

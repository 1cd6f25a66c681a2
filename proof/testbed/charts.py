"""Charts as inline SVG that follow the light or dark theme of the page around them.

Drawn by matplotlib without a display; the same data gives the same text, byte for byte.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of a chart: the CSS variable of the page, and what stands for it where there is no page.
COLOURS = {
    "text": "#1c2430",
    "page": "#ffffff",
    "soft": "#5b6676",
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
REGION_COLOURS = tuple(COLOURS[f"region{number}"] for number in range(5))
INCH_PIXELS, WIDTH_PIXELS = 72, 960
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lockstep",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.titlecolor", "legend.labelcolor"), COLOURS["text"]),
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), COLOURS["soft"]),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), COLOURS["rule"]),
}
LABEL = "label:"


@dataclass(slots=True)
class Chart:
    figure: "Figure"
    panels: list["Axes"]
    svg: str = ""


@contextmanager
def draw_chart(
    title: str,
    *,
    heights: Sequence[float],
    end: float,
    begin: float = 0.0,
    since: str = "the run began",
) -> Iterator[Chart]:
    """Open a chart with panels of these heights in pixels; its `svg` is there after the block.

    `title` is what a screen reader says of the whole chart.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(cast("Any", STYLE)):
        size = (WIDTH_PIXELS / INCH_PIXELS, (sum(heights) + 62 * len(heights)) / INCH_PIXELS)
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        axes = figure.subplots(
            len(heights), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        chart = Chart(figure, [panel for (panel,) in axes])
        for panel in chart.panels:
            panel.set_facecolor("none")
            panel.tick_params(length=0)
            panel.grid(axis="y")
        chart.panels[-1].set_xlim(begin, end)
        chart.panels[-1].set_xlabel(f"time since {since} (s)")
        yield chart
        buffer = io.StringIO()
        unnamed = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=unnamed)
    chart.svg = finish_svg(buffer.getvalue(), title)


def label_artist(artist: "Artist", kind: str, text: str) -> None:
    artist.set_gid(f"{LABEL}{kind}:{text}")


def draw_stacked_bars(
    panel: "Axes",
    rates: Mapping[str, Sequence[float]],
    colours: Sequence[str],
    *,
    unit: str,
    kinds: Sequence[str],
) -> None:
    """Draw a stack of bars for each second from 0, a part for each name."""
    bases = [0.0] * max(map(len, rates.values()), default=0)
    for (name, values), colour, kind in zip(rates.items(), colours, kinds, strict=True):
        filled = [(place, value) for place, value in enumerate(values) if value]
        if not filled:
            # Without a bar the legend would not know the colour.
            panel.bar([0], [0], color=colour, label=name)
            continue
        bars = panel.bar(
            [place for place, _ in filled],
            [value for _, value in filled],
            width=0.94,
            bottom=[bases[place] for place, _ in filled],
            align="edge",
            color=colour,
            label=name,
        )
        for bar, (place, value) in zip(bars, filled, strict=True):
            label_artist(bar, kind, f"{name}: {value:g} {unit} at {place} s")
            bases[place] += value


def mark_outage(panel: "Axes", begin: float, end: float, label: str) -> None:
    shade = panel.axvspan(begin, end, color=COLOURS["bad"], alpha=0.12, linewidth=0, label=label)
    label_artist(shade, "outage", f"{label}, from {begin:.0f} s to {end:.0f} s")
    for at in (begin, end):
        panel.axvline(at, color=COLOURS["bad"], linewidth=1.2, linestyle="--")


def add_legend(panel: "Axes", columns: int = 6) -> None:
    panel.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=columns, borderaxespad=0, fontsize=10
    )


def finish_svg(svg: str, title: str) -> str:
    """Make the SVG part of a page: its own names alone, colours by variables, shapes with texts."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own text
    for element in [*root.iter()]:
        # The parser of HTML knows the name spaces; their addresses would look like outside assets.
        # So would clip paths, which are named by url(); what is drawn lies inside them anyway.
        element.tag = element.tag.rpartition("}")[2]
        element.attrib.pop("clip-path", None)
        for clip in element.findall("{*}clipPath"):
            element.remove(clip)
        for name in [name for name in element.attrib if name.startswith("{")]:
            element.set(name.rpartition("}")[2], element.attrib.pop(name))
        gid = element.get("id", "")
        if gid.startswith(LABEL):
            kind, _, text = gid.removeprefix(LABEL).partition(":")
            del element.attrib["id"]
            element.set("class", kind)
            insert_title(element, text)
    insert_title(root, title)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", title)
    drawn = ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)
    variables = {colour: f"var(--{name}, {colour})" for name, colour in COLOURS.items()}
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: variables.get(found[0], found[0]), drawn)


def insert_title(element: ElementTree.Element, text: str) -> None:
    title = ElementTree.Element("title")
    title.text = text
    element.insert(0, title)

"""The regions of a run, drawn in place on a terminal while it goes on."""

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proof.testbed.sampling import CloudSample, RegionSample, SampleTimeline, format_time

BARS = " ▁▂▃▄▅▆▇█"
BARS_SHOWN = 30
STYLES = ("cyan", "yellow", "green", "magenta", "blue")
UP, DOWN = Text("● up", style="green"), Text("● down", style="bold red")


class LiveDisplay:
    """Draws the newest sample, of how many copies are settled; what is told scrolls by above."""

    def __init__(self, console: Console, timeline: SampleTimeline, copies: int) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._timeline, self._copies = timeline, copies

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, text: str) -> None:
        """Print a line above the drawing."""
        self._live.console.print(Text.assemble((format_time(time.time()), "dim"), " ", text))

    def show(self, sample: CloudSample) -> None:
        """Draw a sample in place of the one before."""
        grid = Table.grid(expand=True)
        panels = []
        for style, (name, region) in zip(STYLES, sample.regions.items(), strict=False):
            grid.add_column(ratio=1)
            panels.append(self._panel(name, region, style))
        grid.add_row(*panels)
        progress = Table.grid(padding=(0, 1))
        progress.add_row(
            ProgressBar(total=self._copies, completed=min(sample.settled, self._copies), width=50),
            f"{sample.settled} of {self._copies} copies settled,"
            f" {self._timeline.seconds(sample.at):.0f} s",
        )
        self._live.update(Group(grid, progress))

    def _panel(self, name: str, region: RegionSample, style: str) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_row("host", UP if region.host_up else DOWN)
        table.add_row("namespace", UP if region.namespace_up else DOWN)
        for what in ("waiting", "scheduled", "settled"):
            table.add_row(what, str(getattr(region, what)))
        rates = [
            (after.regions[name].settled - before.regions[name].settled)
            / max(after.at - before.at, 0.001)
            for before, after in pairwise(self._timeline.samples[-BARS_SHOWN - 1 :])
        ]
        newest = f"{rates[-1]:3.0f} " if rates else ""
        table.add_row("a second", Text(newest + draw_bars(rates), style=style))
        is_up = region.host_up and region.namespace_up
        return Panel(table, title=name, border_style=style if is_up else "bold red")


def draw_bars(values: Sequence[float]) -> str:
    highest = max(values, default=0.0) or 1.0
    steps = len(BARS) - 1
    return "".join(BARS[min(steps, round(value / highest * steps))] for value in values)

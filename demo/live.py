"""The live display of a terminal: both regions side by side, progress, and events above."""

from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.display import clock
from demo.samples import Event, RegionSample, Sample, Timeline

BARS = " ▁▂▃▄▅▆▇█"
BARS_SHOWN = 30
STYLES = ("cyan", "yellow")
UP, DOWN = Text("● up", style="green"), Text("● down", style="bold red")


class LiveDisplay:
    """Draws the newest sample in place; events scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._timeline = Timeline(0.0)
        self._copies = 0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def begin(self, timeline: Timeline, copies: int) -> None:
        """Learn where samples will be, and how many copies of messages are to be settled."""
        self._timeline, self._copies = timeline, copies

    def tell(self, event: Event) -> None:
        """Print the event above the live part."""
        self._console.print(Text.assemble((clock(event.at), "dim"), " ", event.text))

    def show(self, sample: Sample) -> None:
        """Redraw both regions and the progress."""
        grid = Table.grid(expand=True)
        panels = []
        for style, (name, region) in zip(STYLES, sample.regions.items(), strict=False):
            grid.add_column(ratio=1)
            panels.append(self._panel(name, region, style))
        grid.add_row(*panels)
        self._live.update(Group(grid, self._progress(sample)))

    def _panel(self, name: str, region: RegionSample, style: str) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_row("host", UP if region.host_up else DOWN)
        table.add_row("namespace", UP if region.namespace_up else DOWN)
        table.add_row("waiting", str(region.waiting))
        table.add_row("scheduled", str(region.scheduled))
        table.add_row("settled", str(region.settled))
        seen = rates(self._timeline.samples, name)
        newest = f"{seen[-1]:3.0f} " if seen else ""
        table.add_row("a second", Text(newest + bars(seen), style=style))
        is_up = region.host_up and region.namespace_up
        return Panel(table, title=name, border_style=style if is_up else "bold red")

    def _progress(self, sample: Sample) -> Table:
        seconds = self._timeline.seconds(sample.at)
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._copies, completed=min(sample.settled, self._copies), width=50)
        row.add_row(bar, f"{sample.settled} of {self._copies} copies settled, {seconds:.0f} s")
        return row


def rates(samples: Sequence[Sample], region: str) -> list[float]:
    """Return deliveries settled a second between neighbouring samples."""
    return [
        (after.regions[region].settled - before.regions[region].settled)
        / max(after.at - before.at, 0.001)
        for before, after in pairwise(samples)
    ]


def bars(values: Sequence[float]) -> str:
    """Draw the newest values as a line of little bars."""
    highest = max(values, default=0.0) or 1.0
    steps = len(BARS) - 1
    return "".join(
        BARS[min(steps, round(value / highest * steps))] for value in values[-BARS_SHOWN:]
    )

"""The displays of a run for a person: plain lines or a live display."""

import sys
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proof.testbed import sampling
from proof.testbed.sampling import CloudSample, RegionSample, RunEvent, SampleTimeline

LINE_SECONDS = 2.0
BARS = " ▁▂▃▄▅▆▇█"
BARS_SHOWN = 30
STYLES = ("cyan", "yellow", "green", "magenta", "blue")
UP, DOWN = Text("● up", style="green"), Text("● down", style="bold red")


class PlainDisplay:
    """One line for each event, and one every couple of seconds while anything changes.

    Used in a `with` block, outside of which it shows nothing. `pending` is how many documents of
    the journal have something to deliver, as far as that was looked at.
    """

    pending: int | None = None

    def __init__(self) -> None:
        self._next_line_at = 0.0
        self._last_line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_event(self, event: RunEvent) -> None:
        self._print(event.at, event.text)

    def show_sample(self, sample: CloudSample) -> None:
        regions = (sampling.describe_region(*region) for region in sample.regions.items())
        line = " | ".join((*regions, *self._describe_pending()))
        if time.monotonic() < self._next_line_at or line == self._last_line:
            return
        self._next_line_at, self._last_line = time.monotonic() + LINE_SECONDS, line
        self._print(sample.at, f"   {line}")

    def _describe_pending(self) -> Sequence[str]:
        return (f"{self.pending} pending in the journal",) if self.pending else ()

    def _print(self, at: float, text: str) -> None:
        sys.stdout.write(f"{sampling.format_time(at)} {text}\n")
        sys.stdout.flush()


class LiveDisplay(PlainDisplay):
    """Draws the newest sample in place, of how many copies are settled; events scroll by above."""

    def __init__(self, console: Console, timeline: SampleTimeline, copies: int) -> None:
        super().__init__()
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._timeline, self._copies = timeline, copies

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show_event(self, event: RunEvent) -> None:
        line = Text.assemble((sampling.format_time(event.at), "dim"), " ", event.text)
        self._console.print(line)

    def show_sample(self, sample: CloudSample) -> None:
        grid = Table.grid(expand=True)
        panels = []
        for style, (name, region) in zip(STYLES, sample.regions.items(), strict=False):
            grid.add_column(ratio=1)
            panels.append(self._panel(name, region, style))
        grid.add_row(*panels)
        progress = Table.grid(padding=(0, 1))
        settled = min(sample.settled, self._copies)
        seconds = self._timeline.seconds(sample.at)
        progress.add_row(
            ProgressBar(total=self._copies, completed=settled, width=50),
            ", ".join(
                (
                    f"{sample.settled} of {self._copies} copies settled",
                    *self._describe_pending(),
                    f"{seconds:.0f} s",
                )
            ),
        )
        self._live.update(Group(grid, progress))

    def _panel(self, name: str, region: RegionSample, style: str) -> Panel:
        table = Table.grid(padding=(0, 2))
        table.add_row("host", UP if region.host_up else DOWN)
        table.add_row("namespace", UP if region.namespace_up else DOWN)
        table.add_row("waiting", str(region.waiting))
        table.add_row("scheduled", str(region.scheduled))
        table.add_row("settled", str(region.settled))
        rates = sampling.settle_rates(self._timeline.samples, name)
        newest = f"{rates[-1]:3.0f} " if rates else ""
        table.add_row("a second", Text(newest + draw_bars(rates), style=style))
        is_up = region.host_up and region.namespace_up
        return Panel(table, title=name, border_style=style if is_up else "bold red")


def draw_bars(values: Sequence[float]) -> str:
    highest = max(values, default=0.0) or 1.0
    steps = len(BARS) - 1
    return "".join(
        BARS[min(steps, round(value / highest * steps))] for value in values[-BARS_SHOWN:]
    )

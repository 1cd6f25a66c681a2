"""What a person sees while a run goes on: one line that moves on a terminal, else plain lines."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

from chaos.progress import Progress
from demo.display import clock, region_line
from demo.samples import Event, Sample

LINE_SECONDS = 5.0


class Display:
    """Events one below the other; how the run stands in a last line, or every few seconds."""

    def __init__(self, console: Console, *, is_plain: bool) -> None:
        self.console = console
        self.phase = ""
        self._is_live = console.is_terminal and not is_plain
        self._status = console.status("")
        self._running = ExitStack()
        self._next_line_at = 0.0

    def __enter__(self) -> Self:
        if self._is_live:
            self._running.enter_context(self._status)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    def show(self, progress: Progress, sample: Sample | None, news: Iterable[Event]) -> None:
        """Print what is new, and say how the run stands."""
        for event in news:
            line = Text.assemble((clock(event.at), "dim"), " ", event.text)
            self.console.print(line, soft_wrap=True)
        line = Text(standing(progress, sample))
        if self._is_live:
            self._status.update(Text.assemble((self.phase, "bold"), "  ", line))
        elif time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + LINE_SECONDS
            self.console.print(Text(f"{clock(time.time())}    {line}"), soft_wrap=True)


def standing(progress: Progress, sample: Sample | None) -> str:
    """Say in one line how far the run is."""
    seen = ", ".join(f"{count} in {region}" for region, count in sorted(progress.effects.items()))
    if sample is None:
        regions = "the cloud is DOWN"
    else:
        regions = " | ".join(region_line(name, one) for name, one in sample.regions.items())
    return f"{progress.safe} safe; effects {seen or 'none'} | {regions}"

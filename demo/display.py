"""What a person sees while the run goes on: the interface, and plain lines for pipes and logs."""

import sys
import time
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from demo.samples import Event, RegionSample, Sample, Timeline

LINE_SECONDS = 2.0


class Display(Protocol):
    """Shows a run; used in a `with` block, outside of which it shows nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begin(self, timeline: Timeline, copies: int) -> None:
        """Learn where samples will be, and how many copies of messages are to be settled."""

    def tell(self, event: Event) -> None:
        """Show something that happened."""

    def show(self, sample: Sample) -> None:
        """Show how both regions stand now."""


class PlainDisplay:
    """One line for each event, and one every couple of seconds while anything moves."""

    def __init__(self) -> None:
        self._next_line_at = 0.0
        self._last_line = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def begin(self, timeline: Timeline, copies: int) -> None:
        """Plain lines carry no progress: they need neither."""

    def tell(self, event: Event) -> None:
        """Print the event with its time of day."""
        self._print(event.at, event.text)

    def show(self, sample: Sample) -> None:
        """Print the sample, if it is news and the last one is old enough."""
        line = " | ".join(region_line(name, region) for name, region in sample.regions.items())
        if time.monotonic() < self._next_line_at or line == self._last_line:
            return
        self._next_line_at, self._last_line = time.monotonic() + LINE_SECONDS, line
        self._print(sample.at, f"   {line}")

    def _print(self, at: float, text: str) -> None:
        sys.stdout.write(f"{clock(at)} {text}\n")
        sys.stdout.flush()


def region_line(name: str, region: RegionSample) -> str:
    """Say in one line how a region stands."""
    return (
        f"{name} {standing(region)}: {region.waiting} waiting, "
        f"{region.scheduled} scheduled, {region.settled} settled"
    )


def standing(region: RegionSample) -> str:
    """Say which parts of a region are up."""
    match region.host_up, region.namespace_up:
        case True, True:
            return "up"
        case False, False:
            return "DOWN"
        case False, True:
            return "host DOWN"
        case _:
            return "namespace DOWN"


def clock(at: float) -> str:
    """Return the local time of day of a moment."""
    return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"

"""Depths and rates of a running cloud over time, and how they are put into words."""

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from local.testing.control import ControlClient


@dataclass(frozen=True, slots=True)
class RegionSample:
    """A region at one moment.

    `waiting` messages could be taken now or are being worked on; `scheduled` ones become visible
    later; `dead` ones were dead-lettered; `settled` counts completed deliveries so far.
    """

    host_up: bool
    namespace_up: bool
    waiting: int
    scheduled: int
    dead: int
    settled: int

    @property
    def outstanding(self) -> int:
        """The number of messages that the queue has yet to hand out for good."""
        return self.waiting + self.scheduled

    def __str__(self) -> str:
        if self.host_up:
            state = "up" if self.namespace_up else "namespace DOWN"
        else:
            state = "host DOWN" if self.namespace_up else "DOWN"
        counts = f"{self.waiting} waiting, {self.scheduled} scheduled, {self.settled} settled"
        return f"{state}: {counts}"


@dataclass(frozen=True, slots=True)
class CloudSample:
    """All regions at one moment, in seconds since the epoch."""

    at: float
    regions: Mapping[str, RegionSample]

    @property
    def outstanding(self) -> int:
        return sum(region.outstanding for region in self.regions.values())

    @property
    def settled(self) -> int:
        return sum(region.settled for region in self.regions.values())

    def __str__(self) -> str:
        return " | ".join(f"{name} {region}" for name, region in self.regions.items())


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in a run, in words; `at` is in seconds since the epoch."""

    at: float
    text: str


@dataclass(slots=True)
class SampleTimeline:
    started_at: float
    samples: list[CloudSample] = field(default_factory=list)
    events: list[RunEvent] = field(default_factory=list)

    def seconds(self, at: float) -> float:
        return at - self.started_at


def take_sample(control: ControlClient, queue: str) -> CloudSample:
    """Look at all regions now; raises ControlRefused."""
    at, counters, depths = time.time(), control.read_counters(), control.read_depths()
    faults = control.read_faults()
    down = {one["component"] for one in faults if one["action"] in ("down", "silent")}
    regions = {}
    for region, host in control.read_hosts().items():
        depth = depths[region][queue]
        completes = counters.get(f"servicebus.{region}", {}).get("complete", {})
        regions[region] = RegionSample(
            host_up=host["state"] == "running",
            namespace_up=f"servicebus.{region}" not in down,
            waiting=depth["active"] + depth["locked"],
            scheduled=depth["scheduled"],
            dead=depth["dead_lettered"],
            settled=round(completes.get("ok", {}).get("count", 0)),
        )
    return CloudSample(at, regions)


def count_by_second(moments: Iterable[tuple[float, float]], seconds: int) -> list[float]:
    """Add amounts up by time: (second, amount) pairs into bins of a second from 0.

    What lies before the first bin or after the last one counts for that bin.
    """
    totals = [0.0] * seconds
    for second, amount in moments:
        totals[min(max(0, int(second)), seconds - 1)] += amount
    return totals


def tell(text: str) -> None:
    """Tell who waits, on standard output, what is so at this time."""
    # One write, because several threads tell.
    sys.stdout.write(f"{format_time(time.time())} {text}\n")
    sys.stdout.flush()


def format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"

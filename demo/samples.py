"""What the stage sees while the run goes on: one sample a moment, one event a turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from demo.costs import Counters

# By region, queue and state.
type Depths = Mapping[str, Mapping[str, Mapping[str, int]]]


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
        """Return how many messages the queue has yet to hand out for good."""
        return self.waiting + self.scheduled


@dataclass(frozen=True, slots=True)
class Sample:
    """Both regions at one moment, in seconds since the epoch."""

    at: float
    regions: Mapping[str, RegionSample]

    @property
    def outstanding(self) -> int:
        """Return how many messages are outstanding in all regions."""
        return sum(region.outstanding for region in self.regions.values())

    @property
    def settled(self) -> int:
        """Return how many deliveries were completed in all regions."""
        return sum(region.settled for region in self.regions.values())


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the run, in words."""

    at: float
    text: str


@dataclass(slots=True)
class Timeline:
    """The samples and events of a run in the order in which they came."""

    started_at: float
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def seconds(self, at: float) -> float:
        """Return a moment as seconds since the run began."""
        return at - self.started_at


def read_sample(
    at: float,
    queue: str,
    counters: Counters,
    depths: Depths,
    hosts: Mapping[str, Mapping[str, str]],
    down: frozenset[str],
) -> Sample:
    """Make a sample of what the control endpoint says; `down` names broken components."""
    return Sample(
        at,
        {
            region: RegionSample(
                host_up=host["state"] == "running",
                namespace_up=f"servicebus.{region}" not in down,
                waiting=depths[region][queue]["active"] + depths[region][queue]["locked"],
                scheduled=depths[region][queue]["scheduled"],
                dead=depths[region][queue]["dead_lettered"],
                settled=settled(counters, region),
            )
            for region, host in hosts.items()
        },
    )


def settled(counters: Counters, region: str) -> int:
    """Return how many deliveries a namespace has seen completed."""
    completes = counters.get(f"servicebus.{region}", {}).get("complete", {})
    return round(completes.get("ok", {}).get("count", 0))

"""The fault plan: what shall go wrong and when, as two endless sequences that follow from a seed.

Outages take processes, regions or the whole cloud away, one at a time. Degradations are armed in
the cloud and spoil a part of what one component does, while outages go on.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Seconds between the end of one and the beginning of the next.
OUTAGE_PAUSES = (1.0, 5.0)
DEGRADATION_PAUSES = (0.5, 3.0)


class OutageKind(StrEnum):
    HOST = "host killed"
    HOSTS = "both hosts killed"
    CLOUD = "cloud killed"
    REGION = "region unavailable"
    NAMESPACE = "namespace down"
    WRITES = "writes moved"
    STORE = "write region lost"
    SENDER = "sender killed"


MAY_BE_SILENT = (OutageKind.REGION, OutageKind.NAMESPACE, OutageKind.STORE)
SILENT_PART = 0.5


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One thing that goes wrong; `at` is in seconds since faults began to be injected.

    An outage says what it takes away, and from which regions; a degradation is the fault to arm.
    What is silent takes connections and answers nothing, where it would refuse them.
    """

    at: float
    seconds: float
    outage: OutageKind | None = None
    regions: tuple[str, ...] = ()
    is_silent: bool = False
    fault: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        where = ", ".join(self.components)
        return f"{self.at:6.1f} s for {self.seconds:4.1f} s  {where:28} {self.what}{self.how}"

    @property
    def event(self) -> str:
        """The sentence that is told when a fault happens, which may be later than planned."""
        return f"{', '.join(self.components)}: {self.what}{self.how}, for {self.seconds:.1f} s"

    @property
    def components(self) -> tuple[str, ...]:
        if self.outage is None:
            return (str(self.fault["component"]),)
        hosts = tuple(f"host {region}" for region in self.regions)
        buses = tuple(f"servicebus.{region}" for region in self.regions)
        affected = {
            OutageKind.HOST: hosts,
            OutageKind.HOSTS: hosts,
            OutageKind.REGION: (*hosts, *buses, "cosmos.journal"),
            OutageKind.NAMESPACE: buses,
            OutageKind.WRITES: ("cosmos.journal",),
            OutageKind.STORE: ("cosmos.journal",),
            OutageKind.SENDER: ("sender",),
        }
        return affected.get(self.outage, ("cloud",))

    @property
    def is_refusal(self) -> bool:
        """Return whether queues refuse what is sent as if a person had to change something."""
        return self.fault.get("operation") == "send" and self.fault.get("status") in REFUSALS

    @property
    def how(self) -> str:
        return " (silent)" if self.is_silent else ""

    @property
    def what(self) -> str:
        if self.outage is not None:
            return str(self.outage)
        status = f" {self.fault['status']}" if "status" in self.fault else ""
        wait = f" {self.fault['seconds']} s" if "seconds" in self.fault else ""
        rate = f", {float(str(self.fault['rate'])):.0%}"
        return f"{self.fault['action']}{status}{wait} of {self.fault['operation']}{rate}"


@dataclass(frozen=True, slots=True)
class Degradation:
    action: str
    operations: tuple[str, ...]
    rates: tuple[float, float]
    statuses: tuple[int, ...] = ()
    seconds: tuple[float, float] | None = None
    lasts: tuple[float, float] = (2.0, 6.0)


# What a queue answers that takes nothing before a person changes something.
REFUSALS = (404, 401, 403)
# How long a write takes whose store is far away; longer than any client waits for an answer.
FAR_SECONDS, SILENT_SECONDS = 0.13, 30.0
# How long a fault stays that clients should not simply try against.
LONG = (8.0, 14.0)
WRITES = ("batch", "replace", "create")
READS = ("read", "query")
SETTLEMENTS = ("complete", "abandon")
STORE_DEGRADATIONS = (
    Degradation("status", (*WRITES, *READS), (0.2, 0.6), (503, 429, 408)),
    Degradation("status", WRITES, (0.1, 0.4), (449,)),
    Degradation("drop-answer", WRITES, (0.1, 0.5)),
    Degradation("drop-connection", (*WRITES, *READS), (0.1, 0.4)),
    Degradation("delay", (*WRITES, *READS), (0.1, 0.5), seconds=(0.2, 3.0)),
    Degradation("stale-read", READS, (0.3, 1.0), seconds=(0.5, 5.0)),
    Degradation("status", ("feed",), (0.3, 1.0), (503, 429)),
    # An error that stays, and a store that is in another part of the world.
    Degradation("status", (*WRITES, *READS), (1.0, 1.0), (403, 401), lasts=LONG),
    Degradation("delay", WRITES, (1.0, 1.0), seconds=(FAR_SECONDS, FAR_SECONDS), lasts=LONG),
)
BUS_DEGRADATIONS = (
    Degradation("status", ("send",), (0.2, 0.6), (503, 500)),
    Degradation("drop-answer", ("send",), (0.1, 0.5)),
    Degradation("delay", ("send",), (0.1, 0.5), seconds=(0.2, 3.0)),
    Degradation("drop-connection", ("send", "deliver", "complete", "accept"), (0.02, 0.1)),
    Degradation("status", SETTLEMENTS, (0.1, 0.5), (503, 500)),
    Degradation("drop-answer", ("complete",), (0.1, 0.5)),
    Degradation(
        "lose-lock", ("complete", "renew-session-lock", "deliver"), (0.05, 0.2), seconds=(0, 1)
    ),
    Degradation("duplicate", ("deliver",), (0.1, 0.4)),
    Degradation("status", ("accept", "renew-session-lock"), (0.2, 0.6), (503,)),
    # A queue that is missing, forbidden or full; a broker that takes messages and never answers.
    Degradation("status", ("send",), (1.0, 1.0), REFUSALS, lasts=LONG),
    Degradation(
        "delay", ("send",), (1.0, 1.0), seconds=(SILENT_SECONDS, SILENT_SECONDS), lasts=LONG
    ),
)


def plan_outages(
    seed: int, regions: tuple[str, str], pause_factor: float = 1.0
) -> Iterator[PlannedFault]:
    """Yield everything that can be taken away, in mixed order, again and again."""
    # The word in the seed is part of every plan that was ever noted: another would change them all.
    chance = random.Random(f"blows {seed}")  # noqa: S311 - a replayable choice, not a secret
    # A stream of its own changes nothing else of a plan.
    silence = random.Random(f"silence {seed}")  # noqa: S311

    def next_one(at: float, outage: OutageKind) -> PlannedFault:
        seconds = round(chance.uniform(2.0, 8.0), 1)
        affected = regions if outage is OutageKind.HOSTS else (chance.choice(regions),)
        is_silent = silence.random() < SILENT_PART and outage in MAY_BE_SILENT
        return PlannedFault(at, seconds, outage, affected, is_silent)

    kinds = shuffle_rounds(tuple(OutageKind), chance)
    return place_in_time(kinds, next_one, OUTAGE_PAUSES, pause_factor, chance)


def plan_degradations(
    seed: int, regions: tuple[str, str], pause_factor: float = 1.0
) -> Iterator[PlannedFault]:
    """Yield faults of the store and of both namespaces, in mixed order, again and again."""
    chance = random.Random(f"squalls {seed}")  # noqa: S311 - a replayable choice, not a secret
    aims = [("cosmos.journal", degradation) for degradation in STORE_DEGRADATIONS for _ in regions]
    aims += [(f"servicebus.{name}", one) for one in BUS_DEGRADATIONS for name in regions]

    def next_one(at: float, aim: tuple[str, Degradation]) -> PlannedFault:
        seconds = round(chance.uniform(*aim[1].lasts), 1)
        return PlannedFault(at, seconds, fault=make_fault(*aim, seconds, chance))

    kinds = shuffle_rounds(tuple(aims), chance)
    return place_in_time(kinds, next_one, DEGRADATION_PAUSES, pause_factor, chance)


def make_fault(
    component: str, degradation: Degradation, lasts: float, chance: random.Random
) -> Mapping[str, object]:
    """Return the fault as the control endpoint takes it; it ends by itself."""
    operation = chance.choice(degradation.operations)
    fault: dict[str, object] = {
        "component": component,
        "action": degradation.action,
        "operation": operation,
        "rate": round(chance.uniform(*degradation.rates), 2),
        "duration_seconds": lasts,
    }
    if degradation.statuses:
        fault["status"] = chance.choice(degradation.statuses)
    if degradation.seconds and not (degradation.action == "lose-lock" and operation != "deliver"):
        fault["seconds"] = round(chance.uniform(*degradation.seconds), 2)
    return fault


def shuffle_rounds[T](kinds: tuple[T, ...], chance: random.Random) -> Iterator[T]:
    while True:
        yield from chance.sample(kinds, len(kinds))


def place_in_time[T](
    kinds: Iterator[T],
    next_one: Callable[[float, T], PlannedFault],
    pauses: tuple[float, float],
    pause_factor: float,
    chance: random.Random,
) -> Iterator[PlannedFault]:
    """Place faults one after another, with a pause before each."""
    at = 0.0
    for kind in kinds:
        at += chance.uniform(pauses[0] * pause_factor, pauses[1] * pause_factor)
        planned = next_one(round(at, 1), kind)
        yield planned
        at += planned.seconds

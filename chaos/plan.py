"""What shall go wrong and when: two endless sequences that follow from a seed.

Blows take processes, regions or the whole cloud away, one at a time. Squalls are armed in the
cloud and spoil a part of what one component does, while blows go on.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# Seconds between the end of one and the beginning of the next.
BLOW_PAUSES = (1.0, 5.0)
SQUALL_PAUSES = (0.5, 3.0)


class Blow(StrEnum):
    """What is taken away for a while."""

    HOST = "host killed"
    HOSTS = "both hosts killed"
    CLOUD = "cloud killed"
    REGION = "region dark"
    NAMESPACE = "namespace down"
    WRITES = "writes moved"
    STORE = "write region lost"
    SENDER = "sender killed"


@dataclass(frozen=True, slots=True)
class Mishap:
    """One thing that goes wrong: `at` counts from the beginning of the weather, in seconds.

    A blow says what it takes away, and from which regions; a squall is the fault that is armed.
    """

    at: float
    seconds: float
    blow: Blow | None = None
    regions: tuple[str, ...] = ()
    fault: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        where = ", ".join(self.components)
        return f"{self.at:6.1f} s for {self.seconds:4.1f} s  {where:28} {self.what}"

    @property
    def components(self) -> tuple[str, ...]:
        """What it happens to, as the picture calls it."""
        if self.blow is None:
            return (str(self.fault["component"]),)
        hosts = tuple(f"host {region}" for region in self.regions)
        buses = tuple(f"servicebus.{region}" for region in self.regions)
        struck = {
            Blow.HOST: hosts,
            Blow.HOSTS: hosts,
            Blow.REGION: (*hosts, *buses),
            Blow.NAMESPACE: buses,
            Blow.WRITES: ("cosmos.journal",),
            Blow.STORE: ("cosmos.journal",),
            Blow.SENDER: ("sender",),
        }
        return struck.get(self.blow, ("cloud",))

    @property
    def what(self) -> str:
        """What happens, in a few words."""
        if self.blow is not None:
            return str(self.blow)
        status = f" {self.fault['status']}" if "status" in self.fault else ""
        wait = f" {self.fault['seconds']} s" if "seconds" in self.fault else ""
        rate = f", {float(str(self.fault['rate'])):.0%}"
        return f"{self.fault['action']}{status}{wait} of {self.fault['operation']}{rate}"


@dataclass(frozen=True, slots=True)
class Squall:
    """A sort of fault to be armed: what it does, to which operations, how often it strikes."""

    action: str
    operations: tuple[str, ...]
    rates: tuple[float, float]
    statuses: tuple[int, ...] = ()
    seconds: tuple[float, float] | None = None


WRITES = ("batch", "replace", "create")
READS = ("read", "query")
SETTLEMENTS = ("complete", "abandon")
OF_STORE = (
    Squall("status", (*WRITES, *READS), (0.2, 0.6), (503, 429, 408)),
    Squall("status", WRITES, (0.1, 0.4), (449,)),
    Squall("drop-answer", WRITES, (0.1, 0.5)),
    Squall("drop-connection", (*WRITES, *READS), (0.1, 0.4)),
    Squall("delay", (*WRITES, *READS), (0.1, 0.5), seconds=(0.2, 3.0)),
    Squall("stale-read", READS, (0.3, 1.0), seconds=(0.5, 5.0)),
    Squall("status", ("feed",), (0.3, 1.0), (503, 429)),
)
OF_BUS = (
    Squall("status", ("send",), (0.2, 0.6), (503, 500)),
    Squall("drop-answer", ("send",), (0.1, 0.5)),
    Squall("delay", ("send",), (0.1, 0.5), seconds=(0.2, 3.0)),
    Squall("drop-connection", ("send", "deliver", "complete", "accept"), (0.02, 0.1)),
    Squall("status", SETTLEMENTS, (0.1, 0.5), (503, 500)),
    Squall("drop-answer", ("complete",), (0.1, 0.5)),
    Squall("lose-lock", ("complete", "renew-session-lock", "deliver"), (0.05, 0.2), seconds=(0, 1)),
    Squall("duplicate", ("deliver",), (0.1, 0.4)),
    Squall("status", ("accept", "renew-session-lock"), (0.2, 0.6), (503,)),
)


def blows(seed: int, regions: tuple[str, str], ease: float = 1.0) -> Iterator[Mishap]:
    """Everything that can be taken away, in mixed order, again and again."""
    chance = random.Random(f"blows {seed}")  # noqa: S311 - a replayable choice, not a secret

    def next_one(at: float, blow: Blow) -> Mishap:
        seconds = round(chance.uniform(2.0, 8.0), 1)
        struck = regions if blow is Blow.HOSTS else (chance.choice(regions),)
        return Mishap(at, seconds, blow, struck)

    pauses = eased(BLOW_PAUSES, ease)
    return one_after_another(shuffled(tuple(Blow), chance), next_one, pauses, chance)


def squalls(seed: int, regions: tuple[str, str], ease: float = 1.0) -> Iterator[Mishap]:
    """Faults of the store and of both namespaces, in mixed order, again and again."""
    chance = random.Random(f"squalls {seed}")  # noqa: S311 - a replayable choice, not a secret
    aims = [("cosmos.journal", squall) for squall in OF_STORE for _ in regions]
    aims += [(f"servicebus.{region}", squall) for squall in OF_BUS for region in regions]

    def next_one(at: float, aim: tuple[str, Squall]) -> Mishap:
        seconds = round(chance.uniform(2.0, 6.0), 1)
        return Mishap(at, seconds, fault=armed(*aim, seconds, chance))

    pauses = eased(SQUALL_PAUSES, ease)
    return one_after_another(shuffled(tuple(aims), chance), next_one, pauses, chance)


def armed(
    component: str, squall: Squall, lasts: float, chance: random.Random
) -> Mapping[str, object]:
    """The fault as the control endpoint takes it; it ends by itself."""
    operation = chance.choice(squall.operations)
    fault: dict[str, object] = {
        "component": component,
        "action": squall.action,
        "operation": operation,
        "rate": round(chance.uniform(*squall.rates), 2),
        "duration_seconds": lasts,
    }
    if squall.statuses:
        fault["status"] = chance.choice(squall.statuses)
    if squall.seconds and not (squall.action == "lose-lock" and operation != "deliver"):
        fault["seconds"] = round(chance.uniform(*squall.seconds), 1)
    return fault


def eased(pauses: tuple[float, float], ease: float) -> tuple[float, float]:
    """Pauses so many times as long."""
    return pauses[0] * ease, pauses[1] * ease


def shuffled[T](kinds: tuple[T, ...], chance: random.Random) -> Iterator[T]:
    """Every kind once in each round, in another order each time."""
    while True:
        yield from chance.sample(kinds, len(kinds))


def one_after_another[T](
    kinds: Iterator[T],
    next_one: Callable[[float, T], Mishap],
    pauses: tuple[float, float],
    chance: random.Random,
) -> Iterator[Mishap]:
    """Mishaps that do not overlap."""
    at = 0.0
    for kind in kinds:
        at += chance.uniform(*pauses)
        mishap = next_one(round(at, 1), kind)
        yield mishap
        at += mishap.seconds

"""One run from a seed: what happened, and what was broken."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from shared.domain.handling import Handlers
from simulation.accounts import Outside, business, corrected
from simulation.chance import Chance, Mishap
from simulation.limits import small_limits
from simulation.loop import now, run
from simulation.operator import Correct, uncorrected
from simulation.process import Died
from simulation.variant import Variant, variant_of
from simulation.verdict import violations
from simulation.verdict_on_accounts import account_violations
from simulation.weather import Climate
from simulation.witness import Violation
from simulation.workload import Workload, workload_of
from simulation.world import World

type Judge = Callable[[World], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Play:
    """What is played in a world: handlers, what they are sent, and what must hold in the end."""

    handlers: Handlers
    load: Workload
    judge: Judge
    correct: Correct = uncorrected


type Prepare = Callable[[Chance, Variant], Play]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run."""

    seed: int
    climate: Climate
    variant: Variant
    trace: str
    messages: int
    entries: int
    diary: tuple[Mishap, ...]
    outcomes: Counter[str]
    violations: tuple[Violation, ...]
    virtual_seconds: float

    @property
    def faults(self) -> Counter[str]:
        """How often what went wrong."""
        return Counter(mishap.kind for mishap in self.diary)


def accounts(chance: Chance, variant: Variant) -> Play:
    """The accounts, and messages of every kind for them."""
    outside = Outside()
    load = workload_of(chance.stream("workload"), variant)
    return Play(
        business(outside), load, lambda world: account_violations(world, load, outside), corrected
    )


def simulate(
    seed: int,
    climate: Climate,
    *,
    allowed: Collection[int] | None = None,
    prepare: Prepare = accounts,
) -> Report:
    """Run a seed; only the allowed misfortunes happen, by their number."""
    chance = Chance(seed, allowed)
    variant = variant_of(chance)
    play = prepare(chance, variant)
    with small_limits(wanted=variant.small_limits):
        return run(story(chance, climate, variant, play))


async def story(chance: Chance, climate: Climate, variant: Variant, play: Play) -> Report:
    """Run a world to its rest and judge it."""
    world = World(chance, climate, variant, play.handlers, play.correct)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: listen(world, context))
    try:
        await world.run(play.load)
        found = [*violations(world), *play.judge(world)]
    except TimeoutError as error:
        found = [Violation("P6", f"no rest: {error}")]
    return Report(
        seed=chance.seed,
        climate=climate,
        variant=variant,
        trace=chance.trace.hexdigest()[:16],
        messages=play.load.size,
        entries=sum(len(entries) for entries in world.journal.store.entries.values()),
        diary=tuple(chance.diary),
        outcomes=world.tally.outcomes,
        violations=tuple(found),
        virtual_seconds=now(),
    )


def listen(world: World, context: dict[str, Any]) -> None:
    """Remember what a task failed with, unless it ended with its process."""
    error = context.get("exception")
    if not isinstance(error, Died | asyncio.CancelledError):
        world.tally.surprises.append(f"{context['message']}: {error!r}")

"""One run from a seed: what happened, what was broken, and the fewest faults that break it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.domain.saga import key_of
from shared.domain.saga_record import kinds_of
from simulation.checks import violations
from simulation.faults import Chance, Climate, Mishap
from simulation.process import Died
from simulation.recorder import Violation, state_of
from simulation.scenarios import Play, Prepare, accounts
from simulation.variant import Variant, small_limits, variant_of
from simulation.virtual_time import now, run
from simulation.world import World


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run."""

    play: str
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
    if kinds_of(play.handlers):
        # What a saga's steps answered is read for as long as it may go on: it is not compacted.
        variant = replace(variant, small_limits=False)
    with small_limits(wanted=variant.small_limits):
        return run(story(chance, climate, variant, play))


async def story(chance: Chance, climate: Climate, variant: Variant, play: Play) -> Report:
    """Run a world to its rest and judge it."""
    world = World(chance, climate, variant, play.handlers, play.correct)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: listen(world, context))
    try:
        await world.run(play.load, play.errands)
        found = [*violations(world), *play.judge(world)]
    except TimeoutError as error:
        found = [Violation("P6", f"no rest: {error}")]
    return Report(
        play=play.name,
        seed=chance.seed,
        climate=climate,
        variant=variant,
        trace=chance.trace.hexdigest()[:16],
        messages=play.load.size,
        entries=sum(len(entries) for entries in world.journal.store.entries.values()),
        diary=tuple(chance.diary),
        outcomes=world.tally.outcomes + ends_of(world),
        violations=tuple(found),
        virtual_seconds=now(),
    )


def ends_of(world: World) -> Counter[str]:
    """How many sagas came to which end."""
    sessions = filter(key_of, world.journal.store.entries) if world.hubs else ()
    return Counter(f"saga {state_of(world.journal, s).get('state')}" for s in sessions)


def listen(world: World, context: dict[str, Any]) -> None:
    """Remember what a task failed with, unless it ended with its process."""
    error = context.get("exception")
    if not isinstance(error, Died | asyncio.CancelledError):
        world.tally.surprises.append(f"{context['message']}: {error!r}")


type Again = Callable[[Collection[int]], Report]


def shrunk(report: Report, again: Again, tries: int = 150) -> Report:
    """The same failure with as few misfortunes as a greedy search finds.

    `again` runs the seed with some misfortunes only. Larger parts are left out first, then single
    ones; what must not happen changes what happens after it, so each try is a story of its own.
    """
    smallest = report
    size = max(1, len(report.diary) // 2)
    while tries > 0:
        before = smallest
        for fewer in parts_left_out(numbers_of(smallest), size):
            if tries <= 0:
                break
            tries -= 1
            found = again(fewer)
            if found.violations and len(found.diary) < len(smallest.diary):
                smallest = found
                break
        if smallest is before:
            if size == 1:
                break
            size //= 2
    return smallest


def numbers_of(report: Report) -> list[int]:
    """The misfortunes of a run."""
    return [mishap.number for mishap in report.diary]


def parts_left_out(numbers: Sequence[int], size: int) -> list[list[int]]:
    """The misfortunes without a part of them, for each part of a size."""
    return [[*numbers[:start], *numbers[start + size :]] for start in range(0, len(numbers), size)]

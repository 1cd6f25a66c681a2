"""One run from a seed: what happened, what was broken, and the smallest misfortune that does it."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from simulation.business import handlers
from simulation.chance import Chance
from simulation.loop import run
from simulation.process import Died
from simulation.verdict import Violation, violations
from simulation.weather import Climate
from simulation.workload import Workload, workload
from simulation.world import World


@dataclass(frozen=True, slots=True)
class Size:
    """How much is sent."""

    sessions: int = 2
    messages: int = 6


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a run."""

    seed: int
    trace: str
    messages: int
    diary: tuple[str, ...]
    violations: tuple[Violation, ...]
    virtual_seconds: float


def simulate(
    seed: int, climate: Climate, size: Size, allowed: Collection[int] | None = None
) -> Report:
    """Run a seed; only the allowed misfortunes happen, by their number."""
    chance = Chance(seed, allowed)
    load = workload(chance, sessions=size.sessions, messages=size.messages)
    return run(story(World(chance, climate, handlers), load))


async def story(world: World, load: Workload) -> Report:
    """Run a world to its rest and judge it."""
    asyncio.get_running_loop().set_exception_handler(ignore_the_dead)
    try:
        await world.run(load)
        found = tuple(violations(world, load))
    except TimeoutError as error:
        found = (Violation("P6", f"no rest: {error}"),)
    chance = world.chance
    return Report(
        seed=chance.seed,
        trace=chance.trace.hexdigest()[:16],
        messages=sum(len(p.drafts) for p in load.publications) + len(load.plain),
        diary=tuple(chance.diary),
        violations=found,
        virtual_seconds=now_of(world),
    )


def ignore_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of tasks that ended with their process."""
    if not isinstance(context.get("exception"), Died):
        loop.default_exception_handler(context)


def now_of(world: World) -> float:
    """How long the run took in its own time."""
    return world.journal.clock.now()


def shrink(report: Report, climate: Climate, size: Size, tries: int = 200) -> Report:
    """The same failure with as few misfortunes as a greedy search finds."""
    kept = [int(line.split(":", 1)[0]) for line in report.diary]
    smallest = report
    position = 0
    while position < len(kept) and tries > 0:
        tries -= 1
        fewer = kept[:position] + kept[position + 1 :]
        found = simulate(report.seed, climate, size, fewer)
        if found.violations:
            smallest = found
            kept = [int(line.split(":", 1)[0]) for line in found.diary]
        else:
            position += 1
    return replace(smallest)

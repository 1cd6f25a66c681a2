"""One run from a seed: what happened, what was broken, and the fewest faults that break it."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from proof.simulation.checks.promises import violations
from proof.simulation.work.scenarios import Scenario, ScenarioFactory, accounts
from proof.simulation.world.faults import FaultProfile, InjectedFault, SeededRandom
from proof.simulation.world.recorder import Violation, state_of
from proof.simulation.world.variant import Variant, small_limits, variant_of
from proof.simulation.world.virtual_time import now, run
from proof.simulation.world.world import World
from shared.domain.saga.plan import key_of
from shared.domain.saga.record import kinds_of
from shared.testkit.injected_faults import ProcessKilled

SHRINK_RUNS_MAX = 150


@dataclass(frozen=True, slots=True)
class RunReport:
    scenario: str
    seed: int
    profile: FaultProfile
    variant: Variant
    trace: str
    messages: int
    entries: int
    faults: tuple[InjectedFault, ...]
    outcomes: Counter[str]
    violations: tuple[Violation, ...]
    virtual_seconds: float


def simulate(
    seed: int,
    profile: FaultProfile,
    *,
    allowed: Collection[int] | None = None,
    scenario: ScenarioFactory = accounts,
) -> RunReport:
    """Run a seed. Only the faults whose numbers are allowed are injected; None allows all."""
    rng = SeededRandom(seed, allowed)
    variant = variant_of(rng)
    chosen = scenario(rng, variant)
    if kinds_of(chosen.handlers):
        # What a saga's steps answered is read for as long as it may go on: it is not compacted.
        variant = replace(variant, small_limits=False)
    with small_limits(wanted=variant.small_limits, few_cursors=variant.few_cursors):
        return run(run_scenario(rng, profile, variant, chosen))


async def run_scenario(
    rng: SeededRandom, profile: FaultProfile, variant: Variant, scenario: Scenario
) -> RunReport:
    world = World(rng, profile, variant, scenario.handlers, scenario.correct, scenario.counterpart)

    def record_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # A task that ended with its process is no surprise.
        if not isinstance(error, ProcessKilled | asyncio.CancelledError):
            world.observed.surprises.append(f"{context['message']}: {error!r}")

    asyncio.get_running_loop().set_exception_handler(record_error)
    try:
        await world.run(scenario.load, scenario.saga_requests)
        found = [*violations(world), *scenario.check(world)]
    except TimeoutError as error:
        found = [Violation("P6", f"it never finished: {error}")]
    sagas = filter(key_of, world.journal.store.entries) if world.hubs else ()
    ends = Counter(f"saga {state_of(world.journal, s).get('state')}" for s in sagas)
    ends += Counter(heard.outcome for heard in world.askers.heard)
    return RunReport(
        scenario=scenario.name,
        seed=rng.seed,
        profile=profile,
        variant=variant,
        trace=rng.trace.hexdigest()[:16],
        messages=scenario.load.size,
        entries=sum(len(entries) for entries in world.journal.store.entries.values()),
        faults=tuple(world.injector.faults),
        outcomes=world.observed.outcomes + ends,
        violations=tuple(found),
        virtual_seconds=now(),
    )


def shrink(report: RunReport, scenario: ScenarioFactory) -> RunReport:
    """Return the same failure with as few faults as a greedy search finds.

    Larger parts are left out first, then single faults. A fault that is left out changes all that
    follows it, so each try is a run of its own.
    """
    smallest = report
    size = max(1, len(report.faults) // 2)
    runs_left = SHRINK_RUNS_MAX
    while runs_left > 0:
        before, numbers = smallest, [fault.number for fault in smallest.faults]
        for start in range(0, len(numbers), size):
            if runs_left <= 0:
                break
            runs_left -= 1
            fewer = [*numbers[:start], *numbers[start + size :]]
            found = simulate(report.seed, report.profile, allowed=fewer, scenario=scenario)
            if found.violations and len(found.faults) < len(smallest.faults):
                smallest = found
                break
        if smallest is before:
            if size == 1:
                break
            size //= 2
    return smallest

"""Do each piece of work once for every fault, and for every two of which one follows the other."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from shared.testkit.injected_faults import PASSING_FAULTS, CallFault, ProcessKilled
from shared.testkit.regions import call_faults
from tests.crash_points.calls import CallSite, TracedFaultPlan
from tests.crash_points.regions import BusinessRegions
from tests.crash_points.workloads import WORKLOADS
from tests.sizes import IS_PROOF

# So many are tried at every run of the suite; all of them take minutes.
ONE_PAIR_IN = 16 if IS_PROOF else 512

# A piece of work, by name, and its first call that goes wrong.
type Start = tuple[str, Mapping[int, CallFault]]


@dataclass
class Searched:
    """How often work was done with one fault and with two, who made calls, what went wrong."""

    singles: int = 0
    pairs: int = 0
    call_sites: set[CallSite] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Searched") -> None:
        self.singles += other.singles
        self.pairs += other.pairs
        self.call_sites |= other.call_sites
        self.failures += other.failures


@cache
def undisturbed(name: str) -> tuple[list[CallSite], object]:
    """Who makes each call of the work when nothing goes wrong, and its result."""
    plan = TracedFaultPlan()
    result = do(name, plan)
    return plan.call_sites, result


def starts(name: str) -> list[Start]:
    """Every single fault in a piece of work."""
    return [(name, faults) for faults in call_faults(len(undisturbed(name)[0]))]


def starts_by_line(name: str, turn: int) -> list[Start]:
    """Every way of going wrong once for each line that makes calls, in each turn at another one."""
    places: dict[CallSite, list[int]] = defaultdict(list)
    for place, call_site in enumerate(undisturbed(name)[0]):
        places[call_site].append(place)
    return [
        (name, {made[(turn + n) % len(made)]: fault})
        for made in places.values()
        for n, fault in enumerate(PASSING_FAULTS)
    ]


def search(start: Start, one_pair_in: int) -> Searched:
    """A single fault, and one in so many of the pairs it begins, evenly chosen.

    After a fault other calls are made than without; the second one is among those.
    """
    name, first = start
    searched = Searched(singles=1)
    calls = try_with(name, first, searched)
    after = call_faults(calls, begin=max(first) + 1)
    # Each first call has other second ones: 37 divides none of what is asked for.
    for number, second in enumerate(after, start=37 * max(first)):
        if number % one_pair_in == 0:
            searched.pairs += 1
            try_with(name, {**first, **second}, searched)
    return searched


def try_with(name: str, faults: Mapping[int, CallFault], searched: Searched) -> int:
    """Do the work with these faults and compare its result; how many calls it made."""
    plan = TracedFaultPlan(faults)
    try:
        is_same = do(name, plan) == undisturbed(name)[1]
    # Whatever it raises, people are to know which faults caused it.
    except Exception as error:
        searched.failures.append(f"{name}: {plan}: {error!r}")
    else:
        searched.failures += [] if is_same else [f"{name}: {plan}: another end"]
    searched.call_sites.update(plan.call_sites)
    return len(plan.made)


def do(name: str, plan: TracedFaultPlan) -> object:
    async def work() -> object:
        asyncio.get_running_loop().set_exception_handler(report_error)
        return await WORKLOADS[name](BusinessRegions(plan))

    return asyncio.run(work())


def report_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception that nobody handled, unless a process ended by it."""
    if not isinstance(context.get("exception"), ProcessKilled):
        loop.default_exception_handler(context)

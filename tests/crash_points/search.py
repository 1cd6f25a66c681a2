"""Do each piece of work once for every strike, and for every two of which one follows the other."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from shared.testkit.strikes import How, Killed
from tests.crash_points.strikes import CallSite, Strikes
from tests.crash_points.works import WORKS

# So many are tried at every run of the suite; all of them take minutes.
ONE_PAIR_IN = 16

type Struck = Mapping[int, How]
# A piece of work, by name, and the first call of it that goes wrong.
type Start = tuple[str, Struck]


@dataclass
class Searched:
    """How often work was done with one strike and with two, who made calls, what went wrong."""

    singles: int = 0
    pairs: int = 0
    callers: set[CallSite] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Searched") -> None:
        """Count another search's as well."""
        self.singles += other.singles
        self.pairs += other.pairs
        self.callers |= other.callers
        self.failures += other.failures


def starts(name: str) -> list[Start]:
    """Every single strike at a piece of work."""
    return [(name, struck) for struck in struck_between(0, undisturbed(name)[0])]


def struck_between(begin: int, end: int) -> Iterator[Struck]:
    """Each of these calls going wrong in each way."""
    for place, how in product(range(begin, end), How):
        yield {place: how}


@cache
def undisturbed(name: str) -> tuple[int, object]:
    """How many calls the work makes when nothing goes wrong, and what is seen of it."""
    quiet = Strikes()
    seen = done(name, quiet)
    return len(quiet.made), seen


def search(start: Start, one_pair_in: int) -> Searched:
    """A single strike, and one in so many of the pairs it begins, evenly chosen.

    After a strike other calls are made than without; the second one falls among those.
    """
    name, first = start
    searched = Searched(singles=1)
    calls = try_with(name, first, searched)
    after = struck_between(max(first) + 1, calls)
    for number, second in enumerate(after, start=max(first)):
        if number % one_pair_in == 0:
            searched.pairs += 1
            try_with(name, {**first, **second}, searched)
    return searched


def try_with(name: str, struck: Struck, searched: Searched) -> int:
    """Do the work with these strikes and compare what is seen of it; how many calls it made."""
    strikes = Strikes(struck=struck)
    try:
        is_same = done(name, strikes) == undisturbed(name)[1]
    # Whatever it raises, people are to know which strikes did it.
    except Exception as error:
        searched.failures.append(f"{name}: {strikes}: {error!r}")
    else:
        searched.failures += [] if is_same else [f"{name}: {strikes}: another end"]
    searched.callers |= strikes.callers
    return len(strikes.made)


def done(name: str, strikes: Strikes) -> object:
    """What is seen of the work in the end."""

    async def work() -> object:
        asyncio.get_running_loop().set_exception_handler(but_for_the_dead)
        return await WORKS[name](strikes)

    return asyncio.run(work())


def but_for_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of an exception that nobody took, unless a process died by it."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)

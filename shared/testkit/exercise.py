"""Put handlers through everything that messages go through, and compare with a quiet run."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.testkit.disturbances import Deliver, Struck, fitting, in_turn, strikes
from shared.testkit.elsewhere import require_same_elsewhere
from shared.testkit.found import Found
from shared.testkit.given import Given, as_sent
from shared.testkit.purity import checked_runs
from shared.testkit.seen import Fault, Seen, difference, look
from shared.testkit.stage import Stage

RUNS_MAX = 1_000
HASH_SEEDS = (1, 2)


@dataclass(frozen=True, slots=True)
class Report:
    """What the messages came to, the same in every one of the runs."""

    seen: Seen
    runs: int

    def state(self, session: str) -> dict[str, Any]:
        """The state of a session in the end; a KeyError names the sessions that there are."""
        if session not in self.seen.states:
            raise KeyError(f"no session {session!r} among {sorted(self.seen.states)}")
        return dict(self.seen.states[session])

    def outputs(self, message_type: str | None = None) -> list[dict[str, Any]]:
        """The bodies of the outputs of a type, or of all, in the order of sending."""
        wanted = (m for m in self.seen.sent if message_type in (None, m.type))
        return [json.loads(message.body) for message in wanted]

    @property
    def messages(self) -> tuple[Message, ...]:
        """The outputs whole: ids, numbers and sessions included."""
        return self.seen.sent

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The messages that failed, with the reasons."""
        return self.seen.faults


def exercise(
    handlers: Handlers,
    messages: Sequence[Given],
    *,
    runs_max: int = RUNS_MAX,
    hash_seeds: Sequence[int] = HASH_SEEDS,
) -> Report:
    """Run the messages undisturbed, then under every disturbance; all must come to the same.

    Pure and deterministic handlers are also watched, run again, and run in other processes. Raises
    Found, an AssertionError, for the first thing that is wrong. At most `runs_max` runs are struck.
    """
    sent = as_sent(messages)
    require_same_elsewhere(checked_runs(handlers, sent), hash_seeds)
    with silenced():
        return asyncio.run(disturbed(handlers, sent, runs_max))


async def disturbed(handlers: Handlers, messages: Sequence[Message], runs_max: int) -> Report:
    """Compare every disturbed run with the quiet one."""
    stage = Stage(handlers)
    quiet = await ended(stage, in_turn, messages)
    runs = 1
    for disturbance in fitting(messages):
        with named(lambda: disturbance.name):  # noqa: B023 - it is called before the next one
            require_same(quiet, await ended(Stage(handlers), disturbance.deliver, messages))
        runs += 1
    for strike in strikes(len(stage.strike.made), runs_max):
        struck = Struck()
        with named(lambda: f"when, during {struck.during}, {strike}"):  # noqa: B023
            require_same(quiet, await ended(Stage(handlers, strike), struck.deliver, messages))
        runs += 1
    return Report(quiet, runs)


async def ended(stage: Stage, deliver: Deliver, messages: Sequence[Message]) -> Seen:
    """What is to be seen after the messages were delivered in some way."""
    await deliver(stage, messages)
    await stage.rest()
    return await look(stage)


def require_same(quiet: Seen, disturbed: Seen) -> None:
    """Raise Found where a disturbance changed anything."""
    found = difference(quiet, disturbed)
    if found:
        raise Found(found)


@contextmanager
def silenced() -> Iterator[None]:
    """Keep what the engine logs of so many failures from hiding what was found."""
    logger = logging.getLogger("lockstep")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def named(when: Callable[[], str]) -> Iterator[None]:
    """Say under which disturbance something was found."""
    try:
        yield
    except Found as found:
        raise Found(f"{when()}: {found}") from None

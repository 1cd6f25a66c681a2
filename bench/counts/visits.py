"""The three situations a message can be in, each counted in sessions of its own making.

*Cold*: the first message of a session. *Warm*: the later ones of the same visit; what several
messages cost less what the first does. *Again*: one more message of a session that both regions
have worked on before.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cloud import running, setting_arguments
from bench.counts.waves import Costs, Waves, open_containers
from bench.systems import System

# The change feed is looked at every five seconds.
FEED_SECONDS = 6.0
BATCH_MESSAGES = 10
# With batches a host takes one session at a time and holds an empty one for a second.
BATCH_SESSIONS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """How many sessions, and how many messages of a visit."""

    sessions: int
    each: int


@dataclass(frozen=True, slots=True)
class Visits:
    """What a message of each situation cost; `feed_units` are the change feed's, of any message."""

    cold: Costs
    warm: Costs
    again: Costs
    feed_units: float


def visits(system: System, plan: Plan) -> Visits:
    """Run a system and count all three."""
    with running_waves(system) as waves:
        began = waves.read()
        firsts = [f"first-{n}" for n in range(plan.sessions)]
        visited = [f"visit-{n}" for n in range(plan.sessions)]
        cold = waves.run(firsts, range(1))
        visit = waves.run(visited, range(plan.each))
        again = waves.run(visited, range(plan.each, plan.each + 1))
        if waves.has_change_feed:
            time.sleep(FEED_SECONDS)
        feed = waves.bill(began, waves.read()).feed_units / waves.sent
    return Visits(
        cold.per(plan.sessions),
        visit.minus(cold).per(plan.sessions * (plan.each - 1)),
        again.per(plan.sessions),
        feed,
    )


def batches(system: System) -> Costs:
    """What a message in a batch of ten costs."""
    with running_waves(system) as waves:
        sessions = [f"batch-{n}" for n in range(BATCH_SESSIONS)]
        costs = waves.run(sessions, range(BATCH_MESSAGES))
    return costs.per(BATCH_SESSIONS * BATCH_MESSAGES)


@contextmanager
def running_waves(system: System) -> Iterator[Waves]:
    """A system in two regions on a local cloud of its own."""
    arguments = ["--app", str(system.app), *setting_arguments(system.settings)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as logs,
        running(arguments, Path(logs)) as cloud,
        open_containers(cloud) as containers,
    ):
        yield Waves(cloud, containers, system)

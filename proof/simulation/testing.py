"""The simulation for a team's own handlers: its messages, its invariant, as many seeds as it likes.

See docs/proof.md. `check` is what a test calls; with pytest the fixture `simulation` is the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import cycle, islice

from proof.simulation.run import RunReport, shrink, simulate
from proof.simulation.work.scenarios import Scenario, ScenarioFactory
from proof.simulation.world.clients import Correct, uncorrected
from proof.simulation.world.cloud import REGIONS
from proof.simulation.world.faults import PROFILES, ROUGH, SeededRandom
from proof.simulation.world.recorder import Violation, state_of
from proof.simulation.world.variant import Variant
from proof.simulation.world.workload import PublishPlan, Workload, moment
from proof.simulation.world.world import World
from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.domain.producer import Draft
from shared.storage.journal import REGIONS_SESSION

__all__ = ["FinalState", "Invariant", "check", "moment"]

GROUP = "simulation"
OPERATION_SIZES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class FinalState:
    """The end of a run: each session's last state, and what each region was sent, in order.

    Outputs are by queue, each once; their bodies are JSON.
    """

    states: Mapping[str, Mapping[str, object]]
    outputs: Mapping[str, Mapping[str, Sequence[Message]]]


type Invariant = Callable[[FinalState], None]


def no_invariant(_: FinalState) -> None:
    """Ask for no invariant of one's own: the promises of Lockstep are checked all the same."""


def check(
    handlers: Handlers,
    messages: Sequence[Message],
    invariant: Invariant = no_invariant,
    *,
    seeds: Iterable[int] = range(50),
    profile: str = ROUGH.name,
    correct: Correct = uncorrected,
) -> int:
    """Run the messages through the handlers in two regions, once per seed; how many seeds ran.

    Messages are numbered and published in their order per session; give them no numbers, but a time
    if their handlers want one. Where handlers have kinds of sagas, each region has a task hub; a
    message that starts one needs a time such as `moment(0.0)`, at which each run begins, or its
    steps are too late. Pure handlers are run again, and must give the same. An effectful handler
    may be run more than once. What is scheduled is waited for, up to a day. `invariant` raises
    AssertionError for what must never be. `correct` gives the body with which an operator would
    correct a message that failed, or None.

    Raises AssertionError with the seed, the promise or the invariant that broke, and the fewest
    faults found that break it; ValueError where two messages of a session share an id.
    """
    scenario = scenario_factory(handlers, workload_of(messages), invariant, correct)
    ran = 0
    for seed in seeds:
        report = simulate(seed, PROFILES[profile], scenario=scenario)
        ran += 1
        if report.violations:
            raise AssertionError(described(shrink(report, scenario)))
    return ran


def described(report: RunReport) -> str:
    broken = "\n".join(f"  {violation}"[:2_000] for violation in report.violations[:5])
    faults = "\n".join(f"  {fault}" for fault in report.faults) or "  no faults at all"
    return (
        f"seed {report.seed} with {report.profile.name} faults broke\n{broken}\n"
        f"after\n{faults}\nrepeat it with seeds=[{report.seed}]"
    )


def scenario_factory(
    handlers: Handlers, load: Workload, invariant: Invariant, correct: Correct
) -> ScenarioFactory:
    def check(world: World) -> Iterable[Violation]:
        try:
            outputs = {region: outputs_of(world, region) for region in REGIONS}
            sessions = world.journal.store.entries.keys() - {REGIONS_SESSION}
            states = {session: state_of(world.journal, session) for session in sessions}
            invariant(FinalState(states, outputs))
        except AssertionError as error:
            return [Violation("invariant", str(error) or "it does not hold")]
        return []

    def scenario(_: SeededRandom, __: Variant) -> Scenario:
        return Scenario("yours", handlers, load, check, correct)

    return scenario


def workload_of(messages: Sequence[Message]) -> Workload:
    """Return messages as what one producer publishes to each session, a few at a time."""
    sessions: dict[str, list[Draft]] = {}
    for message in messages:
        if message.number is not None:
            raise ValueError(f"message {message.id!r} has a number; the simulation gives it one")
        drafts = sessions.setdefault(message.session, [])
        if any(draft.id == message.id for draft in drafts):
            raise ValueError(f"two messages of session {message.session!r} are {message.id!r}")
        drafts.append(Draft(**{one.name: getattr(message, one.name) for one in fields(Draft)}))
    plans = []
    for session, drafts in sessions.items():
        # Operations of one, two and three messages, and again, until none is left.
        left, sizes = iter(drafts), cycle(OPERATION_SIZES)
        operations = iter(lambda: tuple(islice(left, next(sizes))), ())  # noqa: B023
        plans.append(PublishPlan(session, GROUP, tuple(operations)))
    return Workload(tuple(plans))


def outputs_of(world: World, region: str) -> Mapping[str, Sequence[Message]]:
    """Return what a region's queues took, each message once, in the order of becoming visible."""
    found: dict[str, dict[str, Message]] = {}
    for queue, accepted in world.namespaces[region].accepted.items():
        for queued in sorted(accepted, key=lambda queued: queued.visible_at):
            found.setdefault(queue, {}).setdefault(queued.message.id, queued.message)
    return {queue: tuple(messages.values()) for queue, messages in found.items()}

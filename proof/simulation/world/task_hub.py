"""A region's task hub as Durable Functions has it: everything in it happens at least once.

Turns and activities are leased to workers. When a lease is over, another worker gets the work; the
first worker's late result is refused for a turn, and delivered as well for an activity.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC
from enum import StrEnum

from durabletask.internal import helpers
from durabletask.internal.orchestrator_service_pb2 import HistoryEvent, OrchestratorAction

from functions.triggers.saga_instances import ORCHESTRATOR
from proof.simulation.world.faults import FaultInjector
from proof.simulation.world.replay import TurnResult, note_action
from proof.simulation.world.virtual_time import Signal, date_of, now
from shared.testkit.memory_store import EPOCH_SECONDS

TURN_LEASE_SECONDS = 10.0
ACTIVITY_LEASE_SECONDS = 20.0
# Often longer than the lease of an activity.
LATE_SECONDS_MAX = 40.0


class HubReply(StrEnum):
    TAKEN = "taken"
    EXISTS = "exists"
    NOT_FOUND = "not found"
    OVER = "over"


@dataclass(eq=False, slots=True)
class Instance:
    """One orchestration; `turn` is the number of the newest lease, `pending` are new events."""

    name: str
    history: list[HistoryEvent] = field(default_factory=list)
    pending: list[HistoryEvent] = field(default_factory=list)
    turn: int = 0
    leased_until: float = 0.0
    result: TurnResult | None = None

    @property
    def is_over(self) -> bool:
        return self.result is not None and bool(self.result.ended or self.result.failed)


@dataclass(frozen=True, slots=True)
class Turn:
    """A leased turn: what the history has of the instance, and what is new, its beginning first."""

    instance: Instance
    number: int
    news: tuple[HistoryEvent, ...]


@dataclass(eq=False, slots=True)
class LeasedActivity:
    """An activity to be performed; workers can lease it again from `visible_at` on."""

    instance: Instance
    action: OrchestratorAction
    visible_at: float


@dataclass
class TaskHub:
    """One region's instances. It is unavailable during `down` and loses everything at `lost_at`.

    `ends` are the results of all instances that ended, `timers_end_at` is when the latest timer
    fires. With `begins_again` an instance that is
    over can be started once more, as with some stores.
    """

    region: str
    injector: FaultInjector
    down: tuple[float, float] | None = None
    lost_at: float | None = None
    begins_again: bool = False
    timers_end_at: float = 0.0
    instances: dict[str, Instance] = field(default_factory=dict)
    activities: list[LeasedActivity] = field(default_factory=list)
    ends: list[tuple[str, TurnResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.signal = Signal(self.down)

    def inject(self, probability: float, kind: str) -> bool:
        return self.injector.inject(probability, kind, f"{self.region} task hub", now())

    def lose_everything(self) -> None:
        self.instances.clear()
        self.activities.clear()

    def unfinished(self) -> list[str]:
        return [
            f"{one.name} in the {self.region} task hub is not over"
            for one in self.instances.values()
            if not one.is_over
        ]

    def begin(self, name: str, given: str) -> HubReply:
        there = self.instances.get(name)
        if there is not None and not (self.begins_again and there.is_over):
            return HubReply.EXISTS
        self.instances[name] = Instance(name)
        began = helpers.new_execution_started_event(ORCHESTRATOR, name, given)
        self.post(self.instances[name], began)
        return HubReply.TAKEN

    def raise_event(self, name: str, event: str) -> HubReply:
        """Send an event to an instance, perhaps late, perhaps twice."""
        instance = self.instances.get(name)
        if instance is None:
            return HubReply.NOT_FOUND
        if instance.is_over:
            return HubReply.OVER
        raised = helpers.new_event_raised_event(event)
        self.post_or_delay(instance, raised, "event late")
        if self.inject(self.injector.profile.events, "event twice"):
            self.post(instance, raised)
        return HubReply.TAKEN

    def post(self, instance: Instance, news: HistoryEvent) -> None:
        if self.instances.get(instance.name) is instance and not instance.is_over:
            instance.pending.append(news)
            self.signal.notify_at(max(now(), instance.leased_until))

    def post_or_delay(self, instance: Instance, news: HistoryEvent, kind: str) -> None:
        late = self.injector.rng.delay(LATE_SECONDS_MAX)
        if self.inject(self.injector.profile.events, kind):
            asyncio.get_running_loop().call_later(late, self.post, instance, news)
        else:
            self.post(instance, news)

    def take_turn(self) -> Turn | None:
        """Lease an instance with news, if there is one."""
        ready = [i for i in self.instances.values() if i.pending and i.leased_until <= now()]
        if not ready:
            return None
        instance = self.injector.rng.pick(ready)
        instance.turn += 1
        instance.leased_until = now() + TURN_LEASE_SECONDS
        self.signal.notify_at(instance.leased_until)
        began = helpers.new_orchestrator_started_event(date_of(now()))
        return Turn(instance, instance.turn, (began, *instance.pending))

    def commit(self, turn: Turn, result: TurnResult) -> None:
        """Take a turn's result, if its lease is still the newest; the result may get lost, too."""
        instance = turn.instance
        is_lost = self.inject(self.injector.profile.turns, "turn lost")
        if is_lost or self.signal.is_down(now()) or turn.number != instance.turn:
            return
        instance.history += [*turn.news, *map(note_action, result.scheduled)]
        del instance.pending[: len(turn.news) - 1]
        instance.leased_until = 0.0
        instance.result = result
        if self.instances.get(instance.name) is not instance:
            return
        if instance.is_over:
            self.ends.append((instance.name, result))
        loop = asyncio.get_running_loop()
        for scheduled in result.scheduled:
            if scheduled.HasField("createTimer"):
                at = scheduled.createTimer.fireAt.ToDatetime(UTC)
                fired = helpers.new_timer_fired_event(scheduled.id, at)
                when = at.timestamp() - EPOCH_SECONDS
                self.timers_end_at = max(self.timers_end_at, when)
                loop.call_at(when, self.post_or_delay, instance, fired, "timer late")
            else:
                self.activities.append(LeasedActivity(instance, scheduled, now()))
        self.signal.notify_at(now())

    def take_activity(self) -> LeasedActivity | None:
        """Lease an activity, as an injected fault to two workers at once."""
        ready = [work for work in self.activities if work.visible_at <= now()]
        if not ready:
            return None
        work = self.injector.rng.pick(ready)
        if not self.inject(self.injector.profile.activities, "activity twice"):
            work.visible_at = now() + ACTIVITY_LEASE_SECONDS
        self.signal.notify_at(work.visible_at)
        return work

    def finish(self, leased: LeasedActivity, news: HistoryEvent) -> None:
        """Take an activity's result, which may get lost, or arrive when its lease is over."""
        profile = self.injector.profile
        if self.signal.is_down(now()) or self.inject(profile.activities, "activity's answer lost"):
            return
        late = self.injector.rng.delay(LATE_SECONDS_MAX)
        if self.inject(profile.activities, "activity's answer late"):
            asyncio.get_running_loop().call_later(late, self.deliver_result, leased, news)
        else:
            self.deliver_result(leased, news)

    def deliver_result(self, leased: LeasedActivity, news: HistoryEvent) -> None:
        """Send the result to the instance; an activity performed twice has two results."""
        if leased in self.activities:
            self.activities.remove(leased)
        self.post(leased.instance, news)

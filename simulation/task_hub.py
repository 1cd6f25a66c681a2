"""A region's task hub as Durable Functions has it: everything in it happens at least once.

Turns and activities are leased to workers. What a worker does not bring back in time another one
gets; whatever the first brings after all is refused for a turn, and told twice for an activity.
"""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from simulation.faults import Weather
from simulation.replay import (
    Answered,
    Began,
    Event,
    Failed,
    Fired,
    News,
    Outcome,
    Raised,
    Scheduled,
    TimerSet,
    TurnBegan,
)
from simulation.virtual_time import Bell, now

TURN_SECONDS = 10.0
ACTIVITY_SECONDS = 20.0
# Often longer than the lease of an activity.
LATE_SECONDS_MAX = 40.0


class Told(StrEnum):
    """What the hub says to its clients."""

    TAKEN = "taken"
    THERE_ALREADY = "there already"
    NOT_FOUND = "not found"
    OVER = "over"


@dataclass(eq=False, slots=True)
class Instance:
    """One orchestration; `turn` is the number of the newest lease."""

    name: str
    history: list[Event] = field(default_factory=list)
    inbox: list[News] = field(default_factory=list)
    turn: int = 0
    leased_until: float = 0.0
    outcome: Outcome | None = None

    @property
    def is_over(self) -> bool:
        """Whether its orchestrator has ended, or failed."""
        return self.outcome is not None and bool(self.outcome.ended or self.outcome.failed)


@dataclass(frozen=True, slots=True)
class Turn:
    """An instance that was leased, with what is new."""

    instance: Instance
    number: int
    began: TurnBegan
    news: tuple[News, ...]

    @property
    def events(self) -> list[Event]:
        """Everything that the orchestrator is run over."""
        return [*self.instance.history, self.began, *self.news]


@dataclass(eq=False, slots=True)
class Work:
    """An activity that is to be performed; `visible_at` is when it is given out next."""

    instance: Instance
    activity: Scheduled
    visible_at: float
    deliveries: int = 0


@dataclass
class TaskHub:
    """One region's instances. In `down` nobody reaches it; at `lost_at` it forgets everything.

    `ends` are the outcomes of all instances that ended. With `begins_again` an instance that is
    over can be begun once more, as some stores have it.
    """

    region: str
    weather: Weather
    down: tuple[float, float] | None = None
    lost_at: float | None = None
    begins_again: bool = False
    instances: dict[str, Instance] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    ends: list[tuple[str, Outcome]] = field(default_factory=list)
    retried: int = 0

    def __post_init__(self) -> None:
        self.bell = Bell(self.down)

    def strikes(self, probability: float, kind: str) -> bool:
        """Whether something goes wrong here and now."""
        return self.weather.strikes(probability, kind, f"{self.region} task hub", now())

    def is_down(self) -> bool:
        """Whether nobody reaches the hub."""
        return self.bell.is_down(now())

    def lose_everything(self) -> None:
        """Begin anew, as after a disaster."""
        self.instances.clear()
        self.works.clear()

    def unrest(self) -> list[str]:
        """The instances that are not over."""
        return [
            f"{one.name} in the {self.region} task hub is not over"
            for one in self.instances.values()
            if not one.is_over
        ]

    def begin(self, name: str, work: str) -> Told:
        """Begin an instance, unless there is one."""
        there = self.instances.get(name)
        if there is not None and not (self.begins_again and there.is_over):
            return Told.THERE_ALREADY
        self.instances[name] = Instance(name)
        self.post(self.instances[name], Began(work))
        return Told.TAKEN

    def raise_event(self, name: str, event: str) -> Told:
        """Tell an instance; it may hear it late, or twice."""
        instance = self.instances.get(name)
        if instance is None:
            return Told.NOT_FOUND
        if instance.is_over:
            return Told.OVER
        self.post_perhaps_late(instance, Raised(event), "event late")
        if self.strikes(self.weather.climate.events, "event twice"):
            self.post(instance, Raised(event))
        return Told.TAKEN

    def post(self, instance: Instance, news: News) -> None:
        """Put news into an instance's inbox, if it is still there."""
        if self.instances.get(instance.name) is instance and not instance.is_over:
            instance.inbox.append(news)
            self.bell.ring_at(max(now(), instance.leased_until))

    def post_perhaps_late(self, instance: Instance, news: News, kind: str) -> None:
        """The same, perhaps only after a while."""
        late = self.weather.chance.delay(LATE_SECONDS_MAX)
        if self.strikes(self.weather.climate.events, kind):
            asyncio.get_running_loop().call_later(late, self.post, instance, news)
        else:
            self.post(instance, news)

    async def next_turn(self) -> Turn:
        """Wait for an instance with news, and lease it."""
        while (turn := self.take_turn()) is None:
            await self.bell.heard()
        return turn

    def take_turn(self) -> Turn | None:
        """Lease an instance, if there is one to take."""
        if self.is_down():
            self.bell.ring_at(now())
            return None
        ready = [i for i in self.instances.values() if i.inbox and i.leased_until <= now()]
        if not ready:
            return None
        instance = self.weather.chance.pick(ready)
        instance.turn += 1
        instance.leased_until = now() + TURN_SECONDS
        self.bell.ring_at(instance.leased_until)
        return Turn(instance, instance.turn, TurnBegan(now()), tuple(instance.inbox))

    def commit(self, turn: Turn, outcome: Outcome) -> None:
        """Take what a turn came to, if its lease is still the newest; this may get lost, too."""
        instance = turn.instance
        is_lost = self.strikes(self.weather.climate.turns, "turn lost")
        if is_lost or self.is_down() or turn.number != instance.turn:
            return
        instance.history += [turn.began, *turn.news, *outcome.asked]
        del instance.inbox[: len(turn.news)]
        instance.leased_until = 0.0
        instance.outcome = outcome
        if self.instances.get(instance.name) is not instance:
            return
        if instance.is_over:
            self.ends.append((instance.name, outcome))
        for asked in outcome.asked:
            self.see_to(instance, asked)
        self.bell.ring_at(now())

    def see_to(self, instance: Instance, asked: Scheduled | TimerSet) -> None:
        """Give out an activity, or set a timer."""
        match asked:
            case Scheduled():
                self.works.append(Work(instance, asked, now()))
            case TimerSet(number, at):
                asyncio.get_running_loop().call_at(at, self.fire, instance, Fired(number))

    def fire(self, instance: Instance, fired: Fired) -> None:
        """A timer is over; it is noticed late now and then."""
        self.post_perhaps_late(instance, fired, "timer late")

    async def next_work(self) -> Work:
        """Wait for an activity, and lease it."""
        while (work := self.take_work()) is None:
            await self.bell.heard()
        return work

    def take_work(self) -> Work | None:
        """Lease an activity, if there is one; perhaps to two workers at once."""
        if self.is_down():
            self.bell.ring_at(now())
            return None
        ready = [work for work in self.works if work.visible_at <= now()]
        if not ready:
            return None
        work = self.weather.chance.pick(ready)
        work.deliveries += 1
        if not self.strikes(self.weather.climate.activities, "activity twice"):
            work.visible_at = now() + ACTIVITY_SECONDS
        self.bell.ring_at(work.visible_at)
        return work

    def finish(self, work: Work, news: Answered | Failed) -> None:
        """Take an activity's answer; it may get lost, or come when another worker was asked."""
        climate = self.weather.climate
        if self.is_down() or self.strikes(climate.activities, "activity's answer lost"):
            return
        late = self.weather.chance.delay(LATE_SECONDS_MAX)
        if self.strikes(climate.activities, "activity's answer late"):
            asyncio.get_running_loop().call_later(late, self.conclude, work, news)
        else:
            self.conclude(work, news)

    def conclude(self, work: Work, news: Answered | Failed) -> None:
        """Tell the instance; an activity that was performed twice is told of twice."""
        if work in self.works:
            self.works.remove(work)
        self.post(work.instance, news)

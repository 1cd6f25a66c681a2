"""The course of a run performed: quiet, bad weather, fair weather, drained."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from azure.core.exceptions import AzureError

from chaos.cloud import Cloud
from chaos.course import Course
from chaos.display import Display
from chaos.options import Options
from chaos.progress import Progress
from chaos.remains import is_at_rest
from chaos.sending import Sending
from chaos.weather import Weather
from demo.control import ControlRefused
from demo.costs import Counters
from demo.samples import Sample

TICK_SECONDS = 0.5
# Parts of the run: before the first is quiet, after the second fair.
QUIET_PART, FAIR_PART = 0.12, 0.88
QUIET_MESSAGES_MAX = 500
START_SECONDS_MAX = 120.0
# The rest is poison, which has no effects, and what is drained.
ALL_PART = 0.98
# So long without a new effect, and with something left to do, means that it will stay undone.
PATIENCE = 150.0
# Longer than anything waits for: a lock, a lease, the next sweep.
STALLED_SECONDS = 60.0
REST_POLL_SECONDS = 2.0
# What a fault-free stretch must not have any of, by operation of a namespace.
DISQUIET = ("abandon", "dead-letter", "expire-lock")


class Phase(StrEnum):
    """Where a run is."""

    QUIET = "quiet"
    WEATHER = "bad weather"
    FAIR = "fair weather"
    DRAINING = "draining"


@dataclass
class Stage:
    """Performs one run on a system that is up."""

    cloud: Cloud
    sender: Sending
    weather: Weather
    course: Course
    progress: Progress
    display: Display
    options: Options
    began_at: float = 0.0

    def perform(self) -> None:
        """Go through the phases; raises what the weather could not give back."""
        self.wait_for_first()
        self.began_at = time.monotonic()
        self.enter(Phase.QUIET)
        self.watch(self.was_quiet)
        self.note_quiet()
        self.sender.hurry()
        self.enter(Phase.WEATHER)
        with self.weather.blowing():
            self.watch(lambda: self.part() >= FAIR_PART)
        self.enter(Phase.FAIR)
        self.watch(lambda: self.part() >= ALL_PART)
        self.sender.stop()
        self.enter(Phase.DRAINING)
        self.drain()

    def wait_for_first(self) -> None:
        """Wait until the sender has sent something; raises ChildFailed when it never does."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.progress.safe:
            self.look()
            if self.sender.finished() or time.monotonic() > deadline:
                raise self.sender.child.failure("nothing was accepted")
            time.sleep(TICK_SECONDS)

    def part(self) -> float:
        """How much of the run is done, from 0 to 1: of its time, or of its messages.

        What does not move any more is done: the judge will say what it lacks.
        """
        is_sent = self.sender.finished()
        if self.options.messages is None:
            return (time.monotonic() - self.began_at) / self.options.seconds
        if is_sent and self.progress.seconds_since_news() > STALLED_SECONDS:
            return 1.0
        return self.most_effects() / self.options.messages

    def was_quiet(self) -> bool:
        """Whether the stretch without faults was long enough."""
        return self.part() >= QUIET_PART or self.most_effects() >= QUIET_MESSAGES_MAX

    def most_effects(self) -> int:
        """How many messages have an effect that came out of the region that is ahead."""
        return max(self.progress.effects.values(), default=0)

    def enter(self, phase: Phase) -> None:
        """Note where the run is."""
        self.course.note("phase", phase=phase)
        self.course.tell(f"--- {phase}")
        self.display.phase = phase

    def note_quiet(self) -> None:
        """Note what must not have happened so far."""
        counters = self.cloud.control.counters()
        counts = {
            f"{operation} in {region}": counted(counters, f"servicebus.{region}", operation)
            for region in self.cloud.regions
            for operation in DISQUIET
        }
        self.course.note("quiet", counts=counts)

    def watch(self, until: Callable[[], bool]) -> None:
        """Look at the run now and then until it is time for the next phase."""
        while not until():
            self.look()
            time.sleep(TICK_SECONDS)

    def look(self) -> None:
        """Take a sample and show it; a cloud that is dead on purpose shows nothing."""
        self.weather.check()
        self.progress.look()
        sample = self.sample()
        if sample is not None:
            self.course.sampled(sample)
        self.display.show(self.progress, sample, self.course.news())

    def sample(self) -> Sample | None:
        """How both regions stand, if there is somebody to say."""
        try:
            return self.cloud.control.sample()
        except ControlRefused:
            return None

    def drain(self) -> None:
        """Wait until nothing is left to do; the judge will name what stays undone."""
        look_at = 0.0
        began_at = time.monotonic()
        while min(self.progress.seconds_since_news(), time.monotonic() - began_at) < PATIENCE:
            self.look()
            if time.monotonic() >= look_at:
                if self.is_at_rest():
                    self.course.tell("nothing is left to do")
                    return
                look_at = time.monotonic() + REST_POLL_SECONDS
            time.sleep(TICK_SECONDS)
        self.course.tell(f"something is left to do, and nothing came out for {PATIENCE:.0f} s")

    def is_at_rest(self) -> bool:
        """Whether nothing is left to do, as far as can be seen."""
        try:
            return is_at_rest(self.cloud.stack)
        except (AzureError, ControlRefused):
            return False


def counted(counters: Counters, component: str, operation: str) -> int:
    """How often an operation of a component took place."""
    rows = counters.get(component, {}).get(operation, {})
    return round(sum(row["count"] for row in rows.values()))

"""Bad weather: performs the plan on a running system, until it is told to be fair again."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from chaos.cloud import Cloud
from chaos.course import Course
from chaos.plan import Blow, Mishap, blows, squalls
from chaos.sending import Sending
from demo.control import ControlRefused
from demo.stage import in_background

# A host may need several tries to come up while its journal is disturbed.
RESTORE_TRIES = 5
ABANDON_SECONDS_MAX = 30.0
# Writes fail until somebody moves them; so long that takes.
MOVED_AFTER_SECONDS = 2.0


@dataclass
class Weather:
    """Two sequences of mishaps side by side: blows, one at a time, and squalls."""

    cloud: Cloud
    sender: Sending
    course: Course
    seed: int
    ease: float
    began_at: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)
    steady: threading.Lock = field(default_factory=threading.Lock)
    sequences: list[Future[None]] = field(default_factory=list)

    @contextmanager
    def blowing(self) -> Iterator[None]:
        """Bad weather, in threads of its own, for as long as the `with` block lasts.

        Then it is fair: whatever was taken away is given back, unless the block was left by an
        error. Raises what went wrong in between.
        """
        self.began_at = time.monotonic()
        regions = self.cloud.regions
        plans = (blows(self.seed, regions, self.ease), squalls(self.seed, regions, self.ease))
        self.sequences = [in_background(partial(self.perform, plan)) for plan in plans]
        try:
            yield
        except BaseException:
            self.abandon()
            raise
        self.make_fair()

    def abandon(self) -> None:
        """End it without giving anything back; nothing is started any more after this."""
        self.is_over.set()
        # Whoever waits for an answer of the cloud has it now.
        self.cloud.kill()
        wait(self.sequences, ABANDON_SECONDS_MAX)

    def make_fair(self) -> None:
        """Give back whatever is taken away."""
        self.is_over.set()
        for sequence in self.sequences:
            sequence.result()
        self.cloud.control.lift()
        for region in self.cloud.regions:
            self.restore_host(region)
        self.cloud.control.move_writes(self.cloud.regions[0])

    def check(self) -> None:
        """Raise what ended a sequence before its time."""
        for sequence in self.sequences:
            if sequence.done():
                sequence.result()

    def perform(self, plan: Iterator[Mishap]) -> None:
        """Perform one mishap after another, none before its time."""
        for mishap in plan:
            if self.is_over.wait(max(0.0, self.began_at + mishap.at - time.monotonic())):
                return
            self.course.tell(str(mishap))
            if mishap.blow is None:
                self.blow_up(mishap)
            else:
                self.strike(mishap.blow, mishap)

    def blow_up(self, squall: Mishap) -> None:
        """Arm a fault that ends by itself, and wait for its end; one that is refused is told."""
        with self.steady:
            try:
                self.cloud.control.arm(squall.fault)
            except ControlRefused as refused:
                self.course.tell(f"refused: {refused}")
                return
        with self.course.during(squall.components, squall.what):
            self.is_over.wait(squall.seconds)

    def strike(self, blow: Blow, mishap: Mishap) -> None:
        """Take something away, and give it back after its time."""
        with self.course.during(mishap.components, mishap.what):
            match blow:
                case Blow.HOST | Blow.HOSTS:
                    with self.hosts_dead(mishap.regions):
                        self.is_over.wait(mishap.seconds)
                case Blow.REGION:
                    with self.hosts_dead(mishap.regions), self.namespaces_down(mishap.regions):
                        self.is_over.wait(mishap.seconds)
                case Blow.NAMESPACE:
                    with self.namespaces_down(mishap.regions):
                        self.is_over.wait(mishap.seconds)
                case Blow.CLOUD:
                    self.take_cloud(mishap)
                case Blow.WRITES:
                    self.move_writes(mishap)
                case Blow.STORE:
                    self.lose_write_region(mishap)
                case Blow.SENDER:
                    self.sender.kill()
                    self.is_over.wait(mishap.seconds)
                    self.sender.start()

    @contextmanager
    def hosts_dead(self, regions: tuple[str, ...]) -> Iterator[None]:
        """Kill hosts, and start them again at the end of the `with` block."""
        for region in regions:
            self.cloud.control.act(region, "kill")
        yield
        for region in regions:
            self.restore_host(region)

    def restore_host(self, region: str) -> None:
        """Start a host unless it runs; raises ControlRefused when it does not come up at all."""
        for tried in range(1, RESTORE_TRIES + 1):
            try:
                self.cloud.control.act(region, "start")
                return
            except ControlRefused as refused:
                self.course.tell(f"the host of {region} is not up yet: {refused}"[:200])
                if tried == RESTORE_TRIES:
                    raise

    @contextmanager
    def namespaces_down(self, regions: tuple[str, ...]) -> Iterator[None]:
        """Keep namespaces down for as long as the `with` block lasts."""
        control = self.cloud.control
        downs = [{"component": f"servicebus.{region}", "action": "down"} for region in regions]
        faults = [control.arm(down) for down in downs]
        yield
        for fault in faults:
            control.lift(fault)

    def take_cloud(self, mishap: Mishap) -> None:
        """Kill the cloud with everything in it, and start it on what it left."""
        with self.steady:
            self.cloud.kill()
            self.is_over.wait(mishap.seconds)
            self.cloud.start()

    def move_writes(self, mishap: Mishap) -> None:
        """Move the journal's writes to another region and back: a planned fail-over."""
        first, second = self.cloud.regions
        self.cloud.control.move_writes(second)
        self.is_over.wait(mishap.seconds)
        self.cloud.control.move_writes(first)

    def lose_write_region(self, mishap: Mishap) -> None:
        """Lose the journal's write region; after a moment its writes are moved, later back."""
        first, second = self.cloud.regions
        lost = {"component": "cosmos", "action": "down", "region": first}
        fault = self.cloud.control.arm(lost)
        self.is_over.wait(MOVED_AFTER_SECONDS)
        self.cloud.control.move_writes(second)
        self.is_over.wait(mishap.seconds)
        self.cloud.control.lift(fault)
        self.cloud.control.move_writes(first)

"""Injects the faults of a plan into a running system until it is told to repair everything."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from local.testing.cloud import CloudProcess
from local.testing.control import ControlRefused
from proof.chaos.plan import OutageKind, PlannedFault, plan_degradations, plan_outages
from proof.chaos.processes import SenderProcess
from proof.chaos.progress import RunLog
from proof.testbed import faults

ABANDON_SECONDS_MAX = 30.0
# Writes fail until somebody moves them; so long that takes.
MOVED_AFTER_SECONDS = 2.0


@dataclass
class FaultInjector:
    """Two sequences of faults side by side: outages, one at a time, and degradations."""

    cloud: CloudProcess
    sender: SenderProcess
    log: RunLog
    seed: int
    pause_factor: float
    began_at: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)
    # A fault cannot be armed while the cloud is being killed and started.
    cloud_lock: threading.Lock = field(default_factory=threading.Lock)
    sequences: list[Future[None]] = field(default_factory=list)

    @contextmanager
    def injecting(self) -> Iterator[None]:
        """Inject faults, in threads of its own, for as long as the `with` block lasts.

        Then everything is repaired, unless the block was left by an error. Raises what went wrong
        in between.
        """
        self.began_at = time.monotonic()
        home, away = self.cloud.regions
        plan = (self.seed, (home, away), self.pause_factor)
        plans = (plan_outages(*plan), plan_degradations(*plan))
        self.sequences = [faults.run_in_background(partial(self.perform, one)) for one in plans]
        try:
            yield
        except BaseException:
            self.abandon()
            raise
        self.repair()

    def abandon(self) -> None:
        """End it without repairing anything; nothing is started any more after this."""
        self.is_over.set()
        # Whoever waits for a response of the cloud has it now.
        self.cloud.kill()
        wait(self.sequences, ABANDON_SECONDS_MAX)

    def repair(self) -> None:
        self.is_over.set()
        for sequence in self.sequences:
            sequence.result()
        self.cloud.control.clear()
        for region in self.cloud.regions:
            faults.start_host(self.cloud.control, region)
        self.cloud.control.move_writes(self.cloud.regions[0])

    def check(self) -> None:
        """Raise what ended a sequence before its time."""
        for sequence in self.sequences:
            if sequence.done():
                sequence.result()

    def perform(self, plan: Iterator[PlannedFault]) -> None:
        """Inject one fault after another, none before its time."""
        for planned in plan:
            if self.is_over.wait(max(0.0, self.began_at + planned.at - time.monotonic())):
                return
            self.log.note_event(planned.event)
            if planned.outage is None:
                self.degrade(planned)
                continue
            with self.log.fault(planned.components, planned.what):
                match planned.outage:
                    case OutageKind.CLOUD:
                        with self.cloud_lock:
                            self.cloud.kill()
                            self.is_over.wait(planned.seconds)
                            self.cloud.start()
                    case OutageKind.SENDER:
                        self.sender.kill()
                        self.is_over.wait(planned.seconds)
                        self.sender.start()
                    case _:
                        with self.outage(planned):
                            self.is_over.wait(planned.seconds)

    def outage(self, planned: PlannedFault) -> AbstractContextManager[None]:
        control, regions = self.cloud.control, planned.regions
        home, away = self.cloud.regions
        moved = partial(self.is_over.wait, MOVED_AFTER_SECONDS)
        action = "silent" if planned.is_silent else "down"
        match planned.outage:
            case OutageKind.HOST | OutageKind.HOSTS:
                return faults.hosts_killed(control, *regions)
            case OutageKind.REGION:
                (region,) = regions
                goes = away if region == home else None
                return faults.region_down(control, region, away=goes, wait=moved, action=action)
            case OutageKind.NAMESPACE:
                buses = (f"servicebus.{name}" for name in regions)
                return faults.components_down(control, *buses, action=action)
            case OutageKind.WRITES:
                return faults.writes_moved(control, home=home, away=away)
            case OutageKind.STORE:
                return faults.journal_lost(control, home, away=away, wait=moved, action=action)
            case unknown:
                raise ValueError(f"{unknown} is no outage of a part of the cloud")

    def degrade(self, planned: PlannedFault) -> None:
        """Arm a fault that ends by itself, and wait for its end; one that is refused is noted."""
        with self.cloud_lock:
            try:
                self.cloud.control.arm(planned.fault)
            except ControlRefused as refused:
                self.log.note_event(f"refused: {refused}")
                return
        if planned.is_refusal:
            self.log.note("refusal", components=planned.components)
        with self.log.fault(planned.components, planned.what):
            self.is_over.wait(planned.seconds)

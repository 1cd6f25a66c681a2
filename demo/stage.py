"""The course of a run performed: feed, kill, take-over, return, and waiting until all is quiet."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread

from demo.costs import Counters
from demo.course import is_drained, kill_is_due, return_is_due
from demo.display import Display
from demo.failover import Outage
from demo.feed import Feed
from demo.journal import Reading, read_journal
from demo.samples import Event, Sample, Timeline
from demo.stack import Stack

TICK_SECONDS = 0.5
STALLED_SECONDS = 180.0
OWED_SECONDS_MAX = 60.0
OWED_POLL_SECONDS = 2.0


class Stalled(Exception):
    """Nothing moved for STALLED_SECONDS; the message says what was being waited for."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: the last sample, the counters, the journal. Outage is None without kill."""

    sample: Sample
    counters: Counters
    reading: Reading
    outage: Outage | None


@dataclass(slots=True)
class Stage:
    """Performs one run on a stack that is up and a feed that has begun."""

    stack: Stack
    feed: Feed
    display: Display
    timeline: Timeline
    events: int
    primary: str
    secondary: str
    outage: Outage | None = None

    def perform(self, *, kills: bool) -> Ending:
        """Go through the course until nothing is outstanding, or nothing moves any more."""
        try:
            if kills and self._wait_for_mid_flow():
                self.outage = self._outage()
            return self._settle()
        except Stalled as stalled:
            self.tell(str(stalled))
            return self._ending()

    def tell(self, text: str) -> None:
        """Note and show something that happened."""
        event = Event(time.time(), text)
        self.timeline.events.append(event)
        self.display.tell(event)

    def _wait_for_mid_flow(self) -> bool:
        self._wait(
            f"{self.primary} to handle its part",
            lambda now: kill_is_due(now, self.primary, self.events) or self._is_over(now),
        )
        if self._is_over(self.timeline.samples[-1]):
            self.tell("everything was handled before a region could be killed")
            return False
        return True

    def _outage(self) -> Outage:
        killed = self.timeline.samples[-1]
        fault = self.stack.control.kill_region(self.primary)
        killed_at = time.time()
        self.tell(f"{self.primary} KILLED: its host by SIGKILL, its namespace down")
        self._wait(
            f"{self.secondary} to take over",
            lambda now: (
                return_is_due(now, killed, self.secondary, self.events) or self._is_idle(now)
            ),
        )
        recovered_at = time.time()
        self.tell(f"{self.primary} is coming back: namespace up, host starting")
        restored = in_background(lambda: self.stack.control.restore_region(self.primary, fault))
        self._wait(f"the host of {self.primary} to start", lambda _: restored.done())
        restored.result()
        self.tell(f"{self.primary} is BACK")
        return Outage(killed_at, recovered_at)

    def _settle(self) -> Ending:
        give_up_at = None
        while True:
            self._wait("the feed to end and the queues to drain", self._is_over)
            ending = self._ending()
            give_up_at = give_up_at or time.monotonic() + OWED_SECONDS_MAX
            if not ending.reading.owed or time.monotonic() > give_up_at:
                self.tell("the feed has ended and both queues are drained")
                return ending
            self.tell(f"{len(ending.reading.owed)} copies are still owed to a region; waiting")
            time.sleep(OWED_POLL_SECONDS)

    def _ending(self) -> Ending:
        counters = self.stack.control.counters()
        return Ending(self._look(), counters, read_journal(self.stack), self.outage)

    def _is_over(self, now: Sample) -> bool:
        return self.feed.finished() and is_drained(now)

    def _is_idle(self, now: Sample) -> bool:
        return self.feed.finished() and now.regions[self.secondary].outstanding == 0

    def _wait(self, what: str, until: Callable[[Sample], bool]) -> None:
        moved_at, progress = time.monotonic(), (-1, -1)
        while not until(now := self._look()):
            if progress != (now.settled, now.outstanding):
                moved_at, progress = time.monotonic(), (now.settled, now.outstanding)
            if time.monotonic() - moved_at > STALLED_SECONDS:
                raise Stalled(f"nothing moved for {STALLED_SECONDS:.0f} s, waited for {what}")
            time.sleep(TICK_SECONDS)

    def _look(self) -> Sample:
        if not self.stack.child.is_running:
            raise self.stack.child.failure("the local cloud ended")
        for news in self.feed.news():
            self.tell(news)
        now = self.stack.control.sample()
        self.timeline.samples.append(now)
        self.display.show(now)
        return now


def in_background(work: Callable[[], None]) -> Future[None]:
    """Do work in a thread that does not keep the program from ending."""
    future: Future[None] = Future()

    def settle() -> None:
        try:
            work()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    Thread(target=settle, daemon=True).start()
    return future

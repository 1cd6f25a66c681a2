"""One run: feed both regions, lose one and bring it back, drain, and check the journal."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from cli.cloud import (
    FLIGHT,
    KEY,
    app_settings,
    keep_up,
    prepare_cloud,
    tell_how_to_reach,
    write_environment,
)
from cli.regions import CONFIG, keep_config
from local.testing.children import Child
from local.testing.cloud import CloudProcess
from proof.demo.checker import DemoHistory, StoredStatus, check_history
from proof.demo.display import LiveDisplay
from proof.demo.loss import MOVED_AFTER_SECONDS, lose
from proof.demo.options import DemoOptions, note_feed
from proof.demo.posts import PREFIX, PostResult, Posts
from proof.demo.report import build_page
from proof.demo.result import DemoResult, Outage, RejectedRows, compute_costs, measure_failover
from proof.demo.waiting import LOOK_SECONDS, Movement, RunStalled, read_queued
from proof.testbed import flights
from proof.testbed.cloud import ROOT
from proof.testbed.faults import run_in_background
from proof.testbed.following import LineFollower
from proof.testbed.journal import JournalWork, read_work
from proof.testbed.sampling import CloudSample, RunEvent, SampleTimeline, take_sample, tell

POLL_SECONDS = 0.5
TELL_SECONDS = 2.0
# How often what is pending becomes an event, which stays on the report.
NOTE_SECONDS = 15.0
# Parts of all messages: what the primary settles before it is hit, and what each region that has to
# go on settles before the primary returns. Deliveries count and not effects: a second run over a
# journal that is full already goes through the same phases.
KILL_AT_PART = 0.30
RETURN_AT_PART = 0.25
FEED_SECONDS = 45.0
RATE_MIN = 1.0
NEWS = b"feed: "
# Spark has nothing to lose by being killed: what was sent is safe, and so is sending it again.
GRACE_SECONDS = 5.0


def read_journal(cloud: CloudProcess) -> DemoHistory:
    """Read what the journal holds, by the plain Azure SDK.

    Reading costs request units like any client's; take the counters first.
    """
    with cloud.open_container() as container:
        return DemoHistory.of(container.read_all_items())


@dataclass(slots=True)
class FeedProcess:
    child: Child
    log: LineFollower
    summary: Path

    def is_finished(self) -> bool:
        """Return whether the feed has ended; raises ChildFailed when it ended badly."""
        if self.child.is_running:
            return False
        if status := self.child.stop():
            raise self.child.failure(f"the feed failed with exit status {status}")
        return True

    def read_news(self) -> Iterator[str]:
        """Yield what the feed logged of its progress since the last call."""
        for line in self.log.read_new():
            if line.startswith(NEWS):
                yield line.decode(errors="replace").strip()

    def count_rejected(self) -> int | None:
        """Return how many rows the feed says it rejected, or None if it did not come to its end."""
        if not self.summary.exists():
            return None
        rejects: dict[str, int] = json.loads(self.summary.read_text())["rejects"]
        return sum(rejects.values())


def start_feed(cloud: CloudProcess, options: DemoOptions, rate: float) -> FeedProcess:
    """Start the feed against a cloud at `rate` messages a second."""
    summary = options.data / "feed.json"
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-m", "spark.samples.flights.feed", "--days", str(options.days)]
    command += ["--rate", f"{rate:g}", "--rejects", str(options.data / "rejects")]
    command += ["--summary", str(summary)]
    if options.source:
        command += ["--source", str(options.source)]
    child = Child(
        command,
        log=options.logs / "feed.log",
        environment=app_settings(cloud),
        cwd=ROOT,
        grace_seconds=GRACE_SECONDS,
    )
    return FeedProcess(child, LineFollower(child.log), summary)


def run(options: DemoOptions) -> int:
    """Run the demo; returns its exit status."""
    console = Console(highlight=False)
    timeline = SampleTimeline(time.time())
    with options.open_directory() as marker, ExitStack() as running:
        note_feed(marker, options)
        console.print("counting what the source holds")
        source = options.source or flights.default_source()
        expected = flights.expect_messages(lambda: flights.read_rows(source), options.days)
        if not expected.sent:
            raise flights.SourceUnreadable(f"{source} holds no flight that could become messages")
        console.print(f"{len(expected.sent)} messages; starting Azure on this machine")
        cloud = running.enter_context(
            prepare_cloud(
                ROOT, keep_config(CONFIG, options.more_regions, options.data), options.data
            )
        )
        for host in cloud.contract["hosts"].values():
            watched = f"watch it on the operations page: {host}/api/operate?code={KEY}"
            console.print(watched, soft_wrap=True)
        copies = len(cloud.regions) * len(expected.sent)
        display = LiveDisplay(console, timeline, copies) if console.is_terminal else None
        result = run_and_check(cloud, options, expected, timeline, display)
        page = build_page(result)
        page.write(options.report)
        page.print(console, options.report)
        if options.keeps_running:
            write_environment(cloud, options.data)
            tell_how_to_reach(cloud, ROOT, options.data, FLIGHT)
            keep_up(cloud)
    return result.exit_status()


def run_and_check(
    cloud: CloudProcess,
    options: DemoOptions,
    expected: flights.ExpectedMessages,
    timeline: SampleTimeline,
    display: LiveDisplay | None,
) -> DemoResult:
    """Feed the cloud through an outage, and check what is in the journal at the end."""
    before = read_journal(cloud).entries
    counters = cloud.control.read_counters()
    messages = len(expected.sent)
    feed = start_feed(cloud, options, options.rate or max(RATE_MIN, messages / FEED_SECONDS))
    with feed.child, display or nullcontext():
        posts = Posts([*cloud.contract["hosts"].values()])
        demo_run = DemoRun(cloud, feed, timeline, messages, posts, display)
        demo_run.note("Azure is up, all hosts are ready; Spark is starting to feed")
        stopped = demo_run.perform(options)
        messages += len(posts.accepted)
        costs = compute_costs(counters, cloud.control.read_counters(), messages)
        # Of a run that was broken off, sessions that still post are not checked.
        posting_over = posts.find_ended()
        found = demo_run.read_end(is_over=not stopped)
    accepted = tuple(one for one in posts.accepted if one.session in posting_over)
    # What an earlier run over the same data posted is nobody's concern here.
    history = found.of_sessions(lambda session: not session.startswith(PREFIX))
    posted = found.of_sessions(posting_over.__contains__)
    known = {(entry.session, entry.position) for entry in before}
    added = tuple(
        entry
        for entry in history.entries
        if entry.status is StoredStatus.COMPLETED and (entry.session, entry.position) not in known
    )
    primary, *others = cloud.regions
    outage = demo_run.outage
    return DemoResult(
        options=options,
        check=check_history(replace(history, sent=expected.sent)),
        posts=PostResult(
            check_history(replace(posted, sent=accepted)),
            len(posted.completed()),
            posts.refused,
            max(posts.seconds, default=0.0),
        ),
        rejects=RejectedRows(reported=feed.count_rejected(), recounted=expected.rejected),
        costs=costs,
        added=added,
        is_first=not before,
        timeline=timeline,
        outage=outage,
        failover=measure_failover(added, outage, primary, others) if outage else None,
        stopped=stopped,
    )


@dataclass(slots=True)
class DemoRun:
    """Goes through the phases of a run, in each of which it waits as long as anything moves."""

    cloud: CloudProcess
    feed: FeedProcess
    timeline: SampleTimeline
    messages: int
    posts: Posts
    display: LiveDisplay | None = None
    outage: Outage | None = None
    movement: Movement = field(default_factory=Movement)
    look_at: float = 0.0
    tell_at: float = 0.0
    last_line: str = ""
    note_at: float = 0.0
    noted_pending: int = 0

    def perform(self, options: DemoOptions) -> str:
        """Go through the phases; returns why the run was broken off, "" if it came to its end."""
        try:
            if options.kills:
                self._lose_and_restore(options)
            self._wait(
                "the feed to end, the queues to drain and every copy to be delivered", self._is_done
            )
        except RunStalled as stalled:
            self.note(f"giving up: {stalled}")
            return str(stalled)
        self.note("the feed has ended, the queues of all regions are drained, nothing is pending")
        return ""

    def note(self, text: str) -> None:
        self.timeline.events.append(RunEvent(time.time(), text))
        (self.display.tell if self.display else tell)(text)

    def _lose_and_restore(self, options: DemoOptions) -> None:
        primary, *others = self.cloud.regions
        self._wait(
            f"{primary} to handle its part",
            lambda now: (
                now.regions[primary].settled >= KILL_AT_PART * self.messages or self._is_over(now)
            ),
        )
        before = self.timeline.samples[-1]
        if self._is_over(before):
            self.note("everything was handled before anything could be lost")
            return
        loss = options.loss
        going_on = others if loss.is_taken_over else [primary]
        # What lies in a queue now may be copies of work that the primary has done, so as much again
        # does not count for who takes over.
        enough = {
            one: before.regions[one].settled
            + (before.regions[one].outstanding if loss.is_taken_over else 0)
            + RETURN_AT_PART * self.messages
            for one in going_on
        }
        killed_at = time.time()
        self.note(f"{primary} LOST: {loss.describe(is_silent=options.is_silent)}")
        self.posts.start()
        with ExitStack() as outage:
            outage.enter_context(
                lose(
                    self.cloud.control,
                    loss,
                    self.cloud.regions,
                    is_silent=options.is_silent,
                    wait=lambda: self._wait(
                        "the journal's writes to move",
                        lambda now: now.at >= killed_at + MOVED_AFTER_SECONDS,
                    ),
                )
            )
            moved_at = time.time() if loss.moves_writes else None
            if moved_at is not None:
                moved = f"the journal's writes MOVED to {others[0]} {moved_at - killed_at:.1f} s"
                self.note(f"{moved} after the loss, by this run; in Azure it takes minutes")
            self._wait(
                f"{' and '.join(going_on)} to go on",
                lambda now: (
                    # Copies of what was posted are settled as well.
                    all(
                        now.regions[one].settled >= enough[one] + len(self.posts.accepted)
                        for one in going_on
                    )
                    or (
                        self.feed.is_finished()
                        and not any(now.regions[one].outstanding for one in going_on)
                    )
                ),
            )
            recovered_at = time.time()
            self.note(f"{primary} is coming back")
            # In the background, because a host takes seconds to start and samples go on.
            restored = run_in_background(outage.pop_all().close)
        self._wait(f"{primary} to be back", lambda _: restored.done())
        restored.result()
        self.note(f"{primary} is BACK")
        self.posts.stopping.set()
        self._wait("what was posted to be accepted", lambda _: self.posts.are_done())
        self.outage = Outage(killed_at, recovered_at, loss, moved_at)

    def _is_done(self, now: CloudSample) -> bool:
        is_over = self._is_over(now)
        work = self._look_at_journal()
        if work is None or not is_over:
            return False
        if work.pending not in (0, self.noted_pending) and time.monotonic() >= self.note_at:
            self.note_at, self.noted_pending = time.monotonic() + NOTE_SECONDS, work.pending
            self.note(f"{work.pending} documents of the journal are to be delivered; waiting")
        # What was delivered between the sample and the look is in a queue now.
        return work.is_done and self._is_over(self._take_sample())

    def _look_at_journal(self) -> JournalWork | None:
        """Return what is left to do in the journal, or None as long as no new look is due."""
        if time.monotonic() < self.look_at:
            return None
        work = read_work(self.cloud)
        self.look_at = time.monotonic() + LOOK_SECONDS
        if work is not None:
            self.movement.see("the journal", work)
        return work

    def read_end(self, *, is_over: bool) -> DemoHistory:
        """Read what journal and queues hold; what was sent is not in it."""
        self._take_sample()
        # The queues before the journal: a message goes from there to here, and so is not missed.
        queued = read_queued(self.cloud)
        is_fed = self.feed.is_finished()
        return replace(read_journal(self.cloud), queued=queued, is_over=is_over, is_fed=is_fed)

    def _is_over(self, now: CloudSample) -> bool:
        return self.feed.is_finished() and is_drained(now)

    def _wait(self, what: str, until: Callable[[CloudSample], bool]) -> None:
        """Wait as long as anything moves, however slowly; raises RunStalled."""
        self.movement.see("what is waited for", what)
        while not until(self._take_sample()):
            self.movement.require(what)
            time.sleep(POLL_SECONDS)

    def _take_sample(self) -> CloudSample:
        if not self.cloud.child.is_running:
            raise self.cloud.child.failure("the local cloud ended")
        for news in self.feed.read_news():
            self.note(news)
        now = take_sample(self.cloud.control, self.cloud.queue)
        self.timeline.samples.append(now)
        if self.display:
            self.display.show(now)
        elif time.monotonic() >= self.tell_at and str(now) != self.last_line:
            self.tell_at, self.last_line = time.monotonic() + TELL_SECONDS, str(now)
            tell(f"   {now}")
        self.movement.see("the feed's log", self.feed.log.read)
        self.movement.see("the regions", now.regions)
        return now


def is_drained(now: CloudSample) -> bool:
    """Return whether nothing is outstanding in any queue, and every region is there to say so.

    A dead letter is outstanding as well: the app gives it an end of its own.
    """
    is_up = all(region.host_up and region.namespace_up for region in now.regions.values())
    return is_up and not now.outstanding and not any(one.dead for one in now.regions.values())

"""One run from an empty directory to its check, and the check of a run that was made before."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from cli.running import DirectoryRefused, run_directory
from local.testing.cloud import CloudProcess
from local.testing.control import ControlRefused, count_operations
from proof.chaos import processes
from proof.chaos.checker.promises import check_history
from proof.chaos.checker.reading import STATES, read_history
from proof.chaos.injector import FaultInjector
from proof.chaos.options import ChaosOptions, RunFiles
from proof.chaos.progress import RunLog, RunProgress
from proof.chaos.records import Record, RecordFollower, read_lines
from proof.chaos.report import format_report
from proof.chaos.workload import write_workload
from proof.testbed.journal import read_work
from proof.testbed.sampling import CloudSample, take_sample, tell

# An entry is old when compaction has had two chances to remove it.
OLD_SECONDS = processes.RETENTION_SECONDS + 2 * processes.COMPACT_SECONDS
POLL_SECONDS = 0.5
TELL_SECONDS = 5.0
# Parts of the run: faults are injected from the first to the second.
FAULTS_PART, RECOVERY_PART = 0.12, 0.88
BASELINE_MESSAGES_MAX = 500
START_SECONDS_MAX = 120.0
# The rest is poison, which has no effects, and what is drained.
ALL_PART = 0.98
# So long without a new effect, and with something left to do, means that it will stay undone.
DRAIN_SECONDS_MAX = 150.0
# Longer than anything waits for: a lock, a lease, the next sweep.
STALLED_SECONDS = 60.0
IDLE_POLL_SECONDS = 2.0
# Operations of a namespace that a stretch without faults must not have any of.
DISTURBANCES = ("abandon", "dead-letter", "expire-lock")
# What a document is called as long as one of its fields says that something is to be done with it.
UNFINISHED = {"pending": "pending", "blocked": "blocked", "claimed": "claimed", "waiting": "parked"}


def run(options: ChaosOptions) -> int:
    """Run, check, report; returns the exit status: 0 when every promise held, else 1."""
    files = RunFiles(options.data)
    with run_directory(options.data, "lockstep-chaos.json", maker="a run", is_fresh=True):
        tell(f"seed {options.seed}; making messages out of real flights")
        # As many as asked for, or more than the time allows.
        wanted = options.messages or int(options.seconds * options.rate)
        made = write_workload(files.workload, wanted, options.operation_max, options.seed)
        tell(f"{made} messages at most; starting Azure on this machine")
        with ExitStack() as running:
            log = RunLog(running.enter_context(Record(files.events)))
            cloud = running.enter_context(processes.running_app_cloud(files))
            running.enter_context(processes.running_recorder(cloud, files))
            sender = processes.SenderProcess(cloud, options, files)
            running.callback(sender.kill)
            injector = FaultInjector(cloud, sender, log, options.seed, options.pause_factor)
            progress = RunProgress(RecordFollower(files.ledger), RecordFollower(files.received))
            ChaosRun(cloud, sender, injector, log, progress, options).perform()
            final_state = json.dumps(read_final_state(cloud))
            files.final_state.write_text(final_state, encoding="utf-8")
        return check_run(files)


def read_final_state(cloud: CloudProcess) -> dict[str, Any]:
    """Read what queues and journal hold, with the control endpoint and plain azure-cosmos.

    Only what the outputs cannot tell: what is left to do, where each session stands, how much is
    kept, and how many entries of each session are older than OLD_SECONDS.
    """
    with cloud.open_container() as container:
        documents: list[Mapping[str, Any]] = list(container.read_all_items())
    entries = [document for document in documents if document["kind"] == "entry"]
    unfinished: dict[str, list[str]] = {what: [] for what in UNFINISHED.values()}
    for document in documents:
        for field, what in UNFINISHED.items():
            if document.get(field):
                unfinished[what].append(f"{document['session']}/{document['id']}")
    entries.sort(key=lambda entry: str(entry["id"]))
    old_before = time.time() - OLD_SECONDS
    return {
        "depths": cloud.control.read_depths(),
        "unfinished": unfinished,
        "kinds": Counter(str(document["kind"]) for document in documents),
        # The newest state of a session is its head.
        "heads": {entry["session"]: entry["state"] for entry in entries if entry.get("state")},
        "old_entries": Counter(e["session"] for e in entries if e["_ts"] < old_before),
    }


def is_idle(cloud: CloudProcess) -> bool:
    """Return whether nothing is left to do in any queue or the journal, as far as can be seen."""
    try:
        depths = cloud.control.read_depths().values()
    except ControlRefused:
        return False
    queues = [queue for region in depths for queue in region.values()]
    work = read_work(cloud)
    is_drained = not any(queue[state] for queue in queues for state in STATES)
    return is_drained and work is not None and work.is_done


def check_run(files: RunFiles) -> int:
    """Check what a run left in its directory; raises DirectoryRefused where it cannot be read."""
    if not files.final_state.exists():
        raise DirectoryRefused(f"{files.data} holds no run that came to its end")
    tell("checking")
    try:
        history, events = read_history(files), list(read_lines(files.events))
        results = check_history(history)
        report = "\n".join(format_report(history, events, results))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DirectoryRefused(f"what is in {files.data} is not a run's: {error!r}") from error
    sys.stdout.write(f"{report}\n")
    return 1 if any(result.violations for result in results) else 0


@dataclass
class ChaosRun:
    cloud: CloudProcess
    sender: processes.SenderProcess
    injector: FaultInjector
    log: RunLog
    progress: RunProgress
    options: ChaosOptions
    began_at: float = 0.0
    tell_at: float = 0.0

    def perform(self) -> None:
        """Go through the phases; raises what the injector could not repair."""
        self.wait_for_first()
        self.began_at = time.monotonic()
        self.log.note_event("phase: no faults")
        most = BASELINE_MESSAGES_MAX
        self.watch(lambda: self.part() >= FAULTS_PART or self.count_effects() >= most)
        self.note_disturbances()
        self.sender.send_at_full_rate()
        self.log.note_event("phase: faults")
        with self.injector.injecting():
            self.watch(lambda: self.part() >= RECOVERY_PART)
        self.log.note_event("phase: recovery")
        self.watch(lambda: self.part() >= ALL_PART)
        self.sender.stop()
        self.log.note_event("phase: draining")
        self.drain()

    def wait_for_first(self) -> None:
        """Wait until the sender has sent something; raises ChildFailed when it never does."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.progress.safe:
            self.update()
            if self.sender.is_finished() or time.monotonic() > deadline:
                raise self.sender.child.failure("nothing was accepted")
            time.sleep(POLL_SECONDS)

    def part(self) -> float:
        """Return how much of the run is done, from 0 to 1: of its time, or of its messages.

        What does not change any more is done: the checker will say what it lacks.
        """
        is_sent = self.sender.is_finished()
        if self.options.messages is None:
            return (time.monotonic() - self.began_at) / self.options.seconds
        if is_sent and self.progress.seconds_since_change() > STALLED_SECONDS:
            return 1.0
        return self.count_effects() / self.options.messages

    def count_effects(self) -> int:
        """Return how many messages have an effect that came out of the region that is ahead."""
        return max(self.progress.effects.values(), default=0)

    def note_disturbances(self) -> None:
        counters = self.cloud.control.read_counters()
        counts = {
            f"{name} in {region}": count_operations(counters, f"servicebus.{region}", name)
            for region in self.cloud.regions
            for name in DISTURBANCES
        }
        self.log.note("baseline", counts=counts)

    def watch(self, until: Callable[[], bool]) -> None:
        while not until():
            self.update()
            time.sleep(POLL_SECONDS)

    def update(self) -> None:
        """Count what came, and tell now and then; a cloud that is dead on purpose has no sample."""
        self.injector.check()
        self.progress.update()
        if time.monotonic() < self.tell_at:
            return
        self.tell_at = time.monotonic() + TELL_SECONDS
        sample: CloudSample | None = None
        with suppress(ControlRefused):
            sample = take_sample(self.cloud.control, self.cloud.queue)
        tell(self.progress.describe(sample))

    def drain(self) -> None:
        """Wait until nothing is left to do; the checker will name what stays undone."""
        poll_at = 0.0
        began_at = time.monotonic()
        while (
            min(self.progress.seconds_since_change(), time.monotonic() - began_at)
            < DRAIN_SECONDS_MAX
        ):
            self.update()
            if time.monotonic() >= poll_at:
                if is_idle(self.cloud):
                    self.log.note_event("nothing is left to do")
                    return
                poll_at = time.monotonic() + IDLE_POLL_SECONDS
            time.sleep(POLL_SECONDS)
        waited = f"nothing came out for {DRAIN_SECONDS_MAX:.0f} s"
        self.log.note_event(f"something is left to do, and {waited}")

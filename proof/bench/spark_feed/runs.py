"""One run of the feed, or of the bare loops, in processes of its own beside a fresh local cloud."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic

import psutil

from cli.cloud import app_settings
from local.testing.cloud import CloudProcess
from proof.testbed.cloud import ROOT, running_cloud
from proof.testbed.command import RunFailed

QUEUE = "lockstep"
GROUP = "flights"
SAMPLE_SECONDS = 0.5
MIB = 2**20
# What the cloud and the feeds log, for who wants to know why one failed.
LOGS = Path(tempfile.gettempdir(), "bench-spark-logs")


@dataclass(slots=True)
class TreeUsage:
    """The usage of processes and their children: `memory_bytes` is the most they held together.

    `busy` is the processor time of each, but for what it used after the last look.
    """

    memory_bytes: int = 0
    busy: dict[int, float] = field(default_factory=dict)

    @property
    def busy_seconds(self) -> float:
        return sum(self.busy.values())


def measure(
    module: str, programs: Sequence[Sequence[str]], environment: Mapping[str, str], log: Path
) -> tuple[list[str], TreeUsage]:
    """Run `python -m module`, once for each words; return their outputs and what they needed.

    Raises RunFailed unless all end well.
    """
    with log.open("ab") as errors:
        children = [
            subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", module, *words],
                env=os.environ | environment,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            for words in programs
        ]
        with watched([child.pid for child in children]) as usage:
            outputs = [child.communicate()[0] for child in children]
    for child in children:
        if child.returncode:
            raise RunFailed(f"{module} ended with {child.returncode}, see {log}")
    return outputs, usage


@contextmanager
def watched(roots: Sequence[int]) -> Iterator[TreeUsage]:
    """Look at processes and at those below them, now and then."""
    usage, ended = TreeUsage(), threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            look(roots, usage)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield usage
    finally:
        ended.set()
        thread.join()


def look(roots: Sequence[int], usage: TreeUsage) -> None:
    held = 0
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(root)
            for process in (parent, *parent.children(recursive=True)):
                # One that goes meanwhile keeps the time it was seen with.
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    usage.busy[process.pid] = times.user + times.system
                    held += read_held_bytes(process.pid)
    usage.memory_bytes = max(usage.memory_bytes, held)


def read_held_bytes(pid: int) -> int:
    """Return the proportional set size of a process."""
    return int(psutil.Process(pid).memory_full_info().pss)


@dataclass(frozen=True, slots=True)
class SendRun:
    """The work and the costs of one system.

    `seconds` are those of the whole job for a feed, and those between the first and the last send
    for bare loops; `sending_seconds` leave out what a feed does before it sends. `busy_seconds` is
    processor time and `memory_bytes` the peak of the system's own processes; `cloud_bytes` is what
    the cloud holds in the end.
    """

    rows: int
    events: int
    seconds: float
    sending_seconds: float
    busy_seconds: float
    memory_bytes: int
    cloud_bytes: int


@dataclass(frozen=True, slots=True)
class FeedCloud:
    cloud: CloudProcess
    folder: Path

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest"

    @property
    def held_bytes(self) -> int:
        return read_held_bytes(self.cloud.child.pid)


@contextmanager
def running_fresh_cloud(folder: Path) -> Iterator[FeedCloud]:
    """Run a cloud without hosts; nobody takes what is sent to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_cloud("--no-hosts", logs=LOGS / "cloud") as cloud:
        yield FeedCloud(cloud, folder)


def feed_flights(days: int, feed_cloud: FeedCloud) -> SendRun:
    path = feed_cloud.folder / "summary.json"
    words = [f"--days={days}", f"--group={GROUP}", f"--manifest={feed_cloud.manifest}"]
    words += [f"--rejects={feed_cloud.folder / 'rejects'}", f"--summary={path}"]
    log = LOGS / "feed.log"
    began, settings = monotonic(), app_settings(feed_cloud.cloud)
    _, usage = measure("spark.samples.flights.feed", [words], settings, log)
    summary = json.loads(path.read_text())
    return SendRun(
        summary["rows"],
        summary["sent"],
        monotonic() - began,
        sending_seconds(feed_cloud.manifest) if summary["sent"] else 0.0,
        usage.busy_seconds,
        usage.memory_bytes,
        feed_cloud.held_bytes,
    )


def sending_seconds(manifest: Path) -> float:
    """Return how long the first run was bound and not yet sent, by the manifest: whole seconds."""
    steps = [json.loads(file.read_text()) for file in manifest.glob("steps/run=1/*/step.json")]
    since = {step["step"]: datetime.fromisoformat(step["since"]) for step in steps}
    return (since["sent"] - since["planned"]).total_seconds()


def run_bare_loops(processes: int, sample: int, plan: Path, feed_cloud: FeedCloud) -> SendRun:
    buses = feed_cloud.cloud.contract["servicebus"].values()
    programs = [
        [str(plan), QUEUE, f"{part}", f"{processes}", f"{sample}", *buses]
        for part in range(processes)
    ]
    log = LOGS / "bare.log"
    settings = app_settings(feed_cloud.cloud)
    outputs, usage = measure("proof.bench.spark_feed.bare", programs, settings, log)
    loops = [json.loads(output) for output in outputs]
    # From the first one's first send to the last one's last.
    seconds = max(each["ended"] for each in loops) - min(each["began"] for each in loops)
    events = sum(each["messages"] for each in loops)
    needed = (usage.busy_seconds, usage.memory_bytes, feed_cloud.held_bytes)
    return SendRun(events, events, seconds, seconds, *needed)

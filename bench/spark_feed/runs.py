"""One run of the feed, or of the bare loops, in processes of its own beside a fresh local cloud."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.spark_feed.processes import ProcessCosts, measure, measure_together, read_held_bytes
from testbed.cloud import CloudProcess, running_cloud

QUEUE = "lockstep"
GROUP = "flights"


@dataclass(frozen=True, slots=True)
class SendRun:
    """What one system did.

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
    logs: Path

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest"

    @property
    def held_bytes(self) -> int:
        return read_held_bytes(self.cloud.child.pid)

    @property
    def environment(self) -> Mapping[str, str]:
        return self.cloud.app_settings()


@contextmanager
def running_fresh_cloud(folder: Path, logs: Path) -> Iterator[FeedCloud]:
    """A cloud without hosts that ends with the context; nobody takes what is sent to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_cloud("--no-hosts", logs=logs / "cloud") as cloud:
        yield FeedCloud(cloud, folder, logs)


def run_feed(days: int, feed_cloud: FeedCloud) -> SendRun:
    path = feed_cloud.folder / "summary.json"
    words = [f"--days={days}", f"--group={GROUP}", f"--manifest={feed_cloud.manifest}"]
    words += [f"--rejects={feed_cloud.folder / 'rejects'}", f"--summary={path}"]
    done = measure(
        "samples.flights.feed", words, feed_cloud.environment, feed_cloud.logs / "feed.log"
    )
    summary = json.loads(path.read_text())
    return SendRun(
        summary["rows"],
        summary["sent"],
        done.seconds,
        sending_seconds(feed_cloud.manifest) if summary["sent"] else 0.0,
        done.busy_seconds,
        done.memory_bytes,
        feed_cloud.held_bytes,
    )


def sending_seconds(manifest: Path) -> float:
    """How long the first run was bound and not yet sent, as the manifest has it: whole seconds."""
    steps = [json.loads(file.read_text()) for file in manifest.glob("steps/run=1/*/step.json")]
    since = {step["step"]: datetime.fromisoformat(step["since"]) for step in steps}
    return (since["sent"] - since["planned"]).total_seconds()


def run_bare_loops(processes: int, sample: int, plan: Path, feed_cloud: FeedCloud) -> SendRun:
    buses = [
        text for name, text in feed_cloud.environment.items() if name.startswith("ServiceBus_")
    ]
    programs = [
        (
            "bench.spark_feed.bare",
            [str(plan), QUEUE, f"{part}", f"{processes}", f"{sample}", *buses],
        )
        for part in range(processes)
    ]
    ended = measure_together(programs, feed_cloud.environment, feed_cloud.logs / "bare.log")
    return add_up(ended, feed_cloud.held_bytes)


def add_up(ended: Sequence[ProcessCosts], cloud_bytes: int) -> SendRun:
    """What several loops sent, from the first one's first send to the last one's last."""
    loops = [json.loads(each.output) for each in ended]
    seconds = max(each["ended"] for each in loops) - min(each["began"] for each in loops)
    events = sum(each["messages"] for each in loops)
    first = ended[0]
    return SendRun(
        events, events, seconds, seconds, first.busy_seconds, first.memory_bytes, cloud_bytes
    )

"""One run of the feed, or of the bare loops, in processes of its own beside a fresh local cloud."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.cloud import Cloud, running
from bench.spark_feed.children import Ended, held_bytes, measured, together

QUEUE = "lockstep"
GROUP = "flights"


@dataclass(frozen=True, slots=True)
class Sent:
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
class Beside:
    """A running cloud, and where a run beside it keeps its own."""

    cloud: Cloud
    folder: Path
    logs: Path

    @property
    def manifest(self) -> Path:
        """What the feed has fed."""
        return self.folder / "manifest"

    @property
    def held_bytes(self) -> int:
        """What the cloud holds."""
        return held_bytes(self.cloud.pid)

    @property
    def environment(self) -> Mapping[str, str]:
        """The app settings that reach the cloud."""
        buses, cosmos = self.cloud.contract["servicebus"], self.cloud.contract["cosmos"]
        connection = f"AccountEndpoint={cosmos['endpoint']};AccountKey={cosmos['key']};"
        return {
            "LOCKSTEP_REGIONS": ",".join(buses),
            "LOCKSTEP_QUEUE": QUEUE,
            "LOCKSTEP_DATABASE": cosmos["database"],
            "Cosmos": connection,
            **{f"ServiceBus_{region}": text for region, text in buses.items()},
        }


@contextmanager
def fresh_cloud(folder: Path, logs: Path) -> Iterator[Beside]:
    """A cloud without hosts that ends with the context; nobody takes what is sent to it."""
    folder.mkdir(parents=True, exist_ok=True)
    with running(["--no-hosts"], logs / "cloud") as cloud:
        yield Beside(cloud, folder, logs)


def fed(days: int, beside: Beside) -> Sent:
    """Feed so many days by the manifest."""
    summary = beside.folder / "summary.json"
    words = [f"--days={days}", f"--group={GROUP}", f"--manifest={beside.manifest}"]
    words += [f"--rejects={beside.folder / 'rejects'}", f"--summary={summary}"]
    done = measured("samples.flights.feed", words, beside.environment, beside.logs / "feed.log")
    told = json.loads(summary.read_text())
    return Sent(
        told["rows"],
        told["sent"],
        done.seconds,
        sending_seconds(beside.manifest) if told["sent"] else 0.0,
        done.busy_seconds,
        done.memory_bytes,
        beside.held_bytes,
    )


def sending_seconds(manifest: Path) -> float:
    """How long the first run was bound and not yet sent, as the manifest has it: whole seconds."""
    steps = [json.loads(file.read_text()) for file in manifest.glob("steps/run=1/*/step.json")]
    since = {step["step"]: datetime.fromisoformat(step["since"]) for step in steps}
    return (since["sent"] - since["planned"]).total_seconds()


def bare(processes: int, sample: int, plan: Path, beside: Beside) -> Sent:
    """Send so many events of a feed's plan with so many bare loops at once."""
    buses = [text for name, text in beside.environment.items() if name.startswith("ServiceBus_")]
    programs = [
        (
            "bench.spark_feed.bare",
            [str(plan), QUEUE, f"{part}", f"{processes}", f"{sample}", *buses],
        )
        for part in range(processes)
    ]
    ended = together(programs, beside.environment, beside.logs / "bare.log")
    return sent_together(ended, beside.held_bytes)


def sent_together(ended: Sequence[Ended], cloud_bytes: int) -> Sent:
    """What several loops sent, from the first one's first send to the last one's last."""
    told = [json.loads(each.output) for each in ended]
    seconds = max(each["ended"] for each in told) - min(each["began"] for each in told)
    events = sum(each["messages"] for each in told)
    first = ended[0]
    return Sent(
        events, events, seconds, seconds, first.busy_seconds, first.memory_bytes, cloud_bytes
    )

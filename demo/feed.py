"""The Spark job that feeds both regions, as a child process."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.children import Child
from demo.options import Options
from demo.stack import SECONDARY_DELAY_SECONDS, Stack

NEWS = b"feed: "
# Spark has nothing to lose by being killed: what was sent is safe, and so is sending it again.
GRACE_SECONDS = 5.0


@dataclass(slots=True)
class Feed:
    """A running feed. It is `finished` only when it ended well."""

    child: Child
    summary: Path
    read: int = 0

    def finished(self) -> bool:
        """Whether the feed has ended; raises ChildFailed when it ended badly."""
        if self.child.is_running:
            return False
        status = self.child.stop()
        if status:
            raise self.child.failure(f"the feed failed with exit status {status}")
        return True

    def news(self) -> Iterator[str]:
        """Yield what the feed said of its progress since the last call."""
        with self.child.log.open("rb") as log:
            log.seek(self.read)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self.read += len(line)
                if line.startswith(NEWS):
                    yield line.decode(errors="replace").strip()

    def rejected(self) -> int | None:
        """Return how many rows the feed says it rejected, or None when it never said."""
        if not self.summary.exists():
            return None
        rejects: dict[str, int] = json.loads(self.summary.read_text())["rejects"]
        return sum(rejects.values())


def start_feed(stack: Stack, options: Options, rate: float) -> Feed:
    """Start the feed against a stack at `rate` messages a second."""
    summary = options.data / "feed.json"
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-m", "samples.flights.feed", "--days", str(options.days)]
    command += ["--rate", f"{rate:g}", "--rejects", str(options.data / "rejects")]
    command += ["--summary", str(summary)]
    if options.source:
        command += ["--source", str(options.source)]
    log = options.logs / "feed.log"
    child = Child(command, log=log, environment=settings(stack), grace_seconds=GRACE_SECONDS)
    return Feed(child, summary)


def settings(stack: Stack) -> Mapping[str, str]:
    """Return the app settings a feed needs to reach the stack."""
    contract = stack.contract
    regions = list(contract["servicebus"])
    containers = contract["containers"]
    return {
        "LOCKSTEP_REGIONS": ",".join(regions),
        "LOCKSTEP_REGION": regions[0],
        "LOCKSTEP_QUEUE": contract["queue"],
        "LOCKSTEP_OUTPUT_QUEUE": "lockstep-out",
        "LOCKSTEP_DATABASE": contract["cosmos"]["database"],
        "LOCKSTEP_JOURNAL": containers["journal"],
        "LOCKSTEP_LEASES": containers["leases"],
        "LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS),
        "Cosmos": stack.cosmos_connection,
        **{f"ServiceBus_{name}": text for name, text in contract["servicebus"].items()},
    }

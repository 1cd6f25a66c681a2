"""The Spark job that feeds both regions, as a child process."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.options import DemoOptions
from testbed.children import Child
from testbed.cloud import CloudProcess

NEWS = b"feed: "
# Spark has nothing to lose by being killed: what was sent is safe, and so is sending it again.
GRACE_SECONDS = 5.0


@dataclass(slots=True)
class FeedProcess:
    child: Child
    summary: Path
    read: int = 0

    def is_finished(self) -> bool:
        if self.child.is_running:
            return False
        status = self.child.stop()
        if status:
            raise self.child.failure(f"the feed failed with exit status {status}")
        return True

    def read_news(self) -> Iterator[str]:
        """Yield what the feed logged of its progress since the last call."""
        with self.child.log.open("rb") as log:
            log.seek(self.read)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self.read += len(line)
                if line.startswith(NEWS):
                    yield line.decode(errors="replace").strip()

    def count_rejected(self) -> int | None:
        """How many rows the feed says it rejected, or None when it did not come to its end."""
        if not self.summary.exists():
            return None
        rejects: dict[str, int] = json.loads(self.summary.read_text())["rejects"]
        return sum(rejects.values())


def start_feed(cloud: CloudProcess, options: DemoOptions, rate: float) -> FeedProcess:
    summary = options.data / "feed.json"
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-m", "samples.flights.feed", "--days", str(options.days)]
    command += ["--rate", f"{rate:g}", "--rejects", str(options.data / "rejects")]
    command += ["--summary", str(summary)]
    if options.source:
        command += ["--source", str(options.source)]
    child = Child(
        command,
        log=options.logs / "feed.log",
        environment=cloud.app_settings(),
        grace_seconds=GRACE_SECONDS,
    )
    return FeedProcess(child, summary)

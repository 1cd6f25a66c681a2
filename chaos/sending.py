"""The sender as a child that is killed and started again."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from chaos.cloud import Cloud
from chaos.names import HURRY
from chaos.options import Options
from chaos.places import Places
from demo.children import Child
from demo.feed import settings

# It ends what it has begun, and the journal may be slow to take it.
GRACE_SECONDS = 90.0


@dataclass
class Sending:
    """The sender process: calm at first. `is_wanted` is False while it is dead on purpose."""

    cloud: Cloud
    options: Options
    places: Places
    starts: Iterator[int]
    child: Child
    is_wanted: bool = True
    is_calm: bool = True

    def hurry(self) -> None:
        """Send as fast as the options say from now on, also after a kill."""
        self.is_calm = False
        os.kill(self.child.pid, HURRY)

    def kill(self) -> None:
        """SIGKILL the sender."""
        self.is_wanted = False
        self.child.kill()
        self.child.stop()

    def start(self) -> None:
        """Start it again; it goes on from its ledger."""
        self.child = launched(
            self.cloud, self.options, self.places, next(self.starts), is_calm=self.is_calm
        )
        self.is_wanted = True

    def finished(self) -> bool:
        """Whether everything is sent; raises ChildFailed when it ended badly by itself."""
        child = self.child
        if not self.is_wanted or child.is_running:
            return False
        if child.stop():
            raise child.failure("the sender failed")
        return True

    def stop(self) -> None:
        """Let it end what it has begun; raises ChildFailed when it cannot."""
        if self.child.stop():
            raise self.child.failure("the sender did not end well")


@contextmanager
def sending(cloud: Cloud, options: Options, places: Places) -> Iterator[Sending]:
    """Run the sender for one `with` block."""
    starts = count(1)
    first = launched(cloud, options, places, next(starts), is_calm=True)
    sender = Sending(cloud, options, places, starts, first)
    try:
        yield sender
    finally:
        sender.child.kill()
        sender.child.stop()


def launched(
    cloud: Cloud, options: Options, places: Places, number: int, *, is_calm: bool
) -> Child:
    """Start a sender process."""
    command = [sys.executable, "-m", "chaos.sender"]
    command += ["--load", str(places.load), "--ledger", str(places.ledger)]
    command += ["--rate", f"{options.rate:g}", "--backlog", str(options.backlog_max)]
    command += ["--control", cloud.control.url, "--queue", cloud.control.queue]
    if is_calm:
        command += ["--calm"]
    return Child(
        command,
        log=places.logs / f"sender-{number}.log",
        environment=settings(cloud.stack),
        grace_seconds=GRACE_SECONDS,
    )

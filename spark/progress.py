"""How far the tasks of a write have come: told in lines, or sent to whoever waits on the driver.

Best effort by design: a datagram that is lost, or that a firewall keeps, costs nothing but news.
"""

import re
import socket
import sys
import time
from dataclasses import dataclass, field
from secrets import token_hex

from pyspark import TaskContext

from spark.sending import Counts

LINE_SECONDS, DATAGRAM_SECONDS = 5.0, 0.5
# host:port/token, as Ear.address has it.
ADDRESS = re.compile(r"(?P<host>.+):(?P<port>\d{1,5})/(?P<token>\w+)")
DATAGRAM_BYTES_MAX = 256


class Progress:
    """Says now and then how far a try of a partition has come: to an address, else on stderr."""

    def __init__(self, context: TaskContext | None, address: str | None = None) -> None:
        self.partition = context.partitionId() if context else 0
        self.attempt = context.attemptNumber() if context else 0
        self.address = address
        self.every = DATAGRAM_SECONDS if address else LINE_SECONDS
        self.due_at = time.monotonic() + self.every

    def __call__(self, counts: Counts) -> None:
        """Say it, if the last time is long enough ago."""
        if time.monotonic() < self.due_at:
            return
        self.due_at = time.monotonic() + self.every
        if self.address is None:
            self.say(f"{counts.sent} sent")
        else:
            tell(self.address, self.partition, counts.sent)

    def end(self, counts: Counts) -> None:
        """Let whoever listens know the whole of it."""
        if self.address is not None:
            tell(self.address, self.partition, counts.sent)

    def say(self, what: str) -> None:
        """A line about this try of the partition."""
        sys.stderr.write(f"partition {self.partition}, try {self.attempt + 1}: {what}\n")
        sys.stderr.flush()


def tell(address: str, partition: int, sent: int) -> None:
    """Send one datagram."""
    found = ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"no host:port/token: {address!r}")
    try:
        family, kind, _, _, place = resolved(found["host"], int(found["port"]))
        with socket.socket(family, kind) as sender:
            sender.sendto(f"{found['token']} {partition} {sent}".encode(), place)
    except OSError:
        return  # Nobody can be reached there; the rows are sent all the same.


def resolved(host: str, port: int) -> tuple[int, int, int, str, tuple[str, int]]:
    """Where datagrams for a host go."""
    bare = host.removeprefix("[").removesuffix("]")
    found: list[tuple[int, int, int, str, tuple[str, int]]]
    found = socket.getaddrinfo(bare, port, type=socket.SOCK_DGRAM)  # type: ignore[assignment]
    return found[0]


@dataclass(slots=True)
class Ear:
    """Hears on the driver how far the partitions are; to be closed."""

    host: str
    token: str = field(default_factory=lambda: token_hex(8))
    rows: dict[int, int] = field(default_factory=dict)
    listener: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        family, kind, _, _, place = resolved(self.host, 0)
        self.listener = socket.socket(family, kind)
        self.listener.setblocking(False)
        self.listener.bind(place)

    @property
    def address(self) -> str:
        """What a task must be told."""
        return f"{self.host}:{self.listener.getsockname()[1]}/{self.token}"

    def heard(self) -> int | None:
        """The rows of all partitions so far; None until a task has said something."""
        while True:
            try:
                words = self.listener.recv(DATAGRAM_BYTES_MAX).decode(errors="replace").split()
            except BlockingIOError:
                return sum(self.rows.values()) if self.rows else None
            match words:
                case [self.token, partition, sent] if partition.isdecimal() and sent.isdecimal():
                    known = self.rows.get(int(partition), 0)
                    self.rows[int(partition)] = max(known, int(sent))
                case _:
                    continue

    def close(self) -> None:
        """Hear no more."""
        self.listener.close()

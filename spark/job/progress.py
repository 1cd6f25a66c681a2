"""The progress of a write's tasks: written to their stderr, or sent to the driver.

This is best effort by design. If a datagram is lost, or a firewall drops it, only the display of
the progress suffers.
"""

import re
import socket
import sys
import time
from dataclasses import dataclass, field
from secrets import token_hex

from pyspark import TaskContext

LINE_SECONDS, DATAGRAM_SECONDS = 5.0, 0.5
# host:port/token, as in ProgressListener.address.
ADDRESS = re.compile(r"(?P<host>.+):(?P<port>\d{1,5})/(?P<token>\w+)")
DATAGRAM_BYTES_MAX = 256
# Follows the rows of a partition that has sent all of them.
END = "end"


class TaskProgress:
    """Reports every few seconds how far an attempt of a partition is: to an address, or stderr."""

    def __init__(self, context: TaskContext | None, address: str | None = None) -> None:
        self.partition = context.partitionId() if context else 0
        self.attempt = context.attemptNumber() if context else 0
        self.address = address
        self.interval = DATAGRAM_SECONDS if address else LINE_SECONDS
        self.due_at = time.monotonic() + self.interval

    def __call__(self, sent: int) -> None:
        if time.monotonic() < self.due_at:
            return
        self.due_at = time.monotonic() + self.interval
        if self.address is None:
            self.log(f"{sent} sent")
        else:
            send_progress(self.address, self.partition, sent)

    def finish(self, sent: int) -> None:
        """Report that all of the partition was sent."""
        if self.address is not None:
            send_progress(self.address, self.partition, sent, is_end=True)

    def log(self, line: str) -> None:
        sys.stderr.write(f"partition {self.partition}, try {self.attempt + 1}: {line}\n")
        sys.stderr.flush()


def send_progress(address: str, partition: int, sent: int, *, is_end: bool = False) -> None:
    """Send one datagram; a receiver that cannot be reached is ignored."""
    found = ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"no host:port/token: {address!r}")
    try:
        family, kind, _, _, place = resolve_address(found["host"], int(found["port"]))
        with socket.socket(family, kind) as sender:
            words = [found["token"], str(partition), str(sent), *([END] if is_end else [])]
            sender.sendto(" ".join(words).encode(), place)
    except OSError:
        return  # The rows are sent all the same.


def resolve_address(host: str, port: int) -> tuple[int, int, int, str, tuple[str, int]]:
    """The first address for datagrams to a host, as socket.getaddrinfo has it."""
    bare = host.removeprefix("[").removesuffix("]")
    found: list[tuple[int, int, int, str, tuple[str, int]]]
    found = socket.getaddrinfo(bare, port, type=socket.SOCK_DGRAM)  # type: ignore[assignment]
    return found[0]


@dataclass(slots=True)
class ProgressListener:
    """Receives on the driver how far tasks are; the token keeps others out. To be closed.

    `ended` are the partitions of which all was sent. One may be missing, if its datagram was lost.
    """

    host: str
    token: str = field(default_factory=lambda: token_hex(8))
    rows: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    receiver: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        family, kind, _, _, place = resolve_address(self.host, 0)
        self.receiver = socket.socket(family, kind)
        self.receiver.setblocking(False)
        self.receiver.bind(place)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.receiver.getsockname()[1]}/{self.token}"

    def receive(self) -> int | None:
        """The rows of all partitions so far; None until a task has sent something."""
        while True:
            try:
                words = self.receiver.recv(DATAGRAM_BYTES_MAX).decode(errors="replace").split()
            except BlockingIOError:
                return sum(self.rows.values()) if self.rows else None
            match words:
                case [self.token, partition, sent, *end] if (
                    partition.isdecimal() and sent.isdecimal() and end in ([], [END])
                ):
                    # A second attempt of a task starts again at 0; what was sent stays sent.
                    before = self.rows.get(int(partition), 0)
                    self.rows[int(partition)] = max(before, int(sent))
                    if end:
                        self.ended.add(int(partition))
                case _:
                    continue

    def close(self) -> None:
        self.receiver.close()

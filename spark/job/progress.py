"""The progress of a write's tasks as its driver hears it: how far each is, and that it has ended.

That a task has ended, and how many rows it has sent, comes by an accumulator, which Spark brings to
the driver with the task's success. While a task runs, Spark brings nothing of what Python counts,
so how far it is comes in datagrams. Where none is heard, the display shows the rows of the tasks
that have ended.
"""

import re
import socket
import sys
import time
from contextlib import suppress
from functools import cache
from secrets import token_hex

from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext

LINE_SECONDS, DATAGRAM_SECONDS = 5.0, 0.5
# A token, and where datagrams are taken host:port before it, as in TaskReports.address.
ADDRESS = re.compile(r"(?:(?P<host>.+):(?P<port>\d{1,5})/)?(?P<token>[0-9a-f]{16})")
DATAGRAM_BYTES_MAX = 256
LOOPBACK = "127.0.0.1"

# The rows that a task has sent, by the token of its write and its partition.
type TaskEnds = dict[tuple[str, int], int]


class TaskEndsParam(AccumulatorParam[TaskEnds]):
    """Adds the tasks of one value to those of another, in place: it is read in other threads."""

    def zero(self, value: TaskEnds) -> TaskEnds:  # noqa: ARG002 - its name is Spark's
        return {}

    def addInPlace(self, value1: TaskEnds, value2: TaskEnds) -> TaskEnds:  # noqa: N802
        value1.update(value2)
        return value1


@cache
def gather_ends(context: SparkContext) -> Accumulator[TaskEnds]:
    """The accumulator of all writes of an application: Spark forgets none, so there is but one."""
    return context.accumulator({}, TaskEndsParam())


class TaskProgress:
    """Reports every few seconds how far an attempt of a partition is: to an address, or stderr."""

    def __init__(self, context: TaskContext | None, address: str | None = None) -> None:
        self.partition = context.partitionId() if context else 0
        self.attempt = context.attemptNumber() if context else 0
        self.address = ADDRESS.fullmatch(address) if address else None
        self.interval = DATAGRAM_SECONDS if address else LINE_SECONDS
        self.due_at = time.monotonic() + self.interval

    def __call__(self, sent: int) -> None:
        if time.monotonic() < self.due_at:
            return
        self.due_at = time.monotonic() + self.interval
        if self.address is None:
            self.log(f"{sent} sent")
        elif self.address["host"]:
            # The rows are sent all the same, if nobody hears of them.
            with suppress(OSError):
                words = f"{self.address['token']} {self.partition} {sent}"
                with socket.socket(type=socket.SOCK_DGRAM) as sender:
                    place = (self.address["host"], int(self.address["port"]))
                    sender.sendto(words.encode(), place)

    def finish(self, sent: int, ends: Accumulator[TaskEnds] | None) -> None:
        """Report that all of the partition was sent; it counts if this attempt succeeds."""
        if self.address is not None and ends is not None:
            ends.add({(self.address["token"], self.partition): sent})

    def log(self, line: str) -> None:
        sys.stderr.write(f"partition {self.partition}, try {self.attempt + 1}: {line}\n")
        sys.stderr.flush()


class TaskReports:
    """The reports of one write's tasks to the driver; the token keeps others out. To be closed.

    Without `listens` it hears only of tasks that have ended.
    """

    def __init__(self, context: SparkContext, *, listens: bool = True) -> None:
        self.ends = gather_ends(context)
        self.address = self.token = token_hex(8)
        self.rows: dict[int, int] = {}
        self.receiver: socket.socket | None = None
        if listens:
            host = context.getConf().get("spark.driver.host") or LOOPBACK
            with suppress(OSError):
                self.receiver = socket.socket(type=socket.SOCK_DGRAM)
                self.receiver.setblocking(False)
                self.receiver.bind((host, 0))
                self.address = f"{host}:{self.receiver.getsockname()[1]}/{self.token}"

    @property
    def ended(self) -> dict[int, int]:
        """The partitions of which all was sent, each with its rows."""
        found = list(self.ends.value.items())
        return {partition: sent for (token, partition), sent in found if token == self.token}

    def count_rows(self) -> int | None:
        """The rows of all partitions so far; None until a task has told of any."""
        self.receive()
        rows = self.rows | self.ended
        return sum(rows.values()) if rows else None

    def receive(self) -> None:
        while self.receiver is not None:
            try:
                words = self.receiver.recv(DATAGRAM_BYTES_MAX).decode(errors="replace").split()
            except BlockingIOError:
                return
            match words:
                case [self.token, partition, sent] if partition.isdecimal() and sent.isdecimal():
                    # A second attempt of a task starts again at 0; what was sent stays sent.
                    before = self.rows.get(int(partition), 0)
                    self.rows[int(partition)] = max(before, int(sent))

    def close(self) -> None:
        for partition in self.ended:
            self.ends.value.pop((self.token, partition), None)
        if self.receiver is not None:
            self.receiver.close()

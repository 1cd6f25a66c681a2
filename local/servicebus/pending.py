"""Changes that are kept, but not yet committed to the ledger's database.

A transaction costs SQLite more than all else that a settlement takes. So what a turn has changed is
kept in this file first, by one write, and the database commits the changes of many turns at once.
Each change overwrites what it is about, so it does no harm to make those of a file once more.
"""

import marshal
import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from struct import Struct
from zlib import crc32

HEAD = Struct("<II")  # bytes of the changes that follow, and their checksum
FORMAT = 4  # of marshal

type Value = str | bytes | int | float | None
type Change = tuple[str, tuple[Value, ...]]  # a statement with its values


class Pending:
    """A file of changes, used by one thread; what was written outlives the process."""

    def __init__(self, path: Path) -> None:
        """Open the file, or begin a new one."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._unwritten: list[bytes] = []
        self.size = 0  # bytes that count

    def read(self) -> list[Change]:
        """What is in the file, in order; a last write that was cut off does not count."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        changes: list[Change] = []
        self.size = 0
        while len(data) - self.size >= HEAD.size:
            length, checksum = HEAD.unpack_from(data, self.size)
            end = self.size + HEAD.size + length
            body = data[self.size + HEAD.size : end]
            if len(body) < length or crc32(body) != checksum:
                break
            changes += decoded(body)
            self.size = end
        return changes

    def add(self, change: Change) -> None:
        """A change that is to be kept with the next writing; raises ValueError if it cannot be."""
        self._unwritten.append(marshal.dumps(change, FORMAT))

    def write(self) -> None:
        """Keep what was added, all or nothing; raises OSError when there is no room for it yet."""
        if not self._unwritten:
            return
        body = b"".join(self._unwritten)
        left = memoryview(HEAD.pack(len(body), crc32(body)) + body)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self._unwritten.clear()
        self.size += HEAD.size + len(body)

    def clear(self) -> None:
        """Begin anew: the changes are committed."""
        os.ftruncate(self._file, 0)
        self.size = 0

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


def decoded(body: bytes) -> Iterator[Change]:
    """The changes of one writing."""
    left = BytesIO(body)
    while left.tell() < len(body):
        yield marshal.load(left)  # noqa: S302 - our own, and the checksum is right

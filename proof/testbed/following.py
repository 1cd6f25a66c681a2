"""Reading a file while others append to it."""

from collections.abc import Iterator
from pathlib import Path


class LineFollower:
    """Reads each line of a file once, and none before its end; `read` is how many bytes it has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0

    def read_new(self) -> Iterator[bytes]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.read += len(line)
                yield line

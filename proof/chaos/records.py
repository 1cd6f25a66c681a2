"""Append-only files of JSON lines: what each process of a run leaves to be checked.

A line is one write to a file opened for appending, so lines of several processes never mix and a
killed process leaves at most one line cut short, at the end.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from proof.testbed.following import LineFollower

type RecordLine = Mapping[str, Any]


class Record:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        # What a killed process left of a line ends here.
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def append(self, *lines: RecordLine) -> None:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        os.write(self._file, text.encode())


class RecordFollower(LineFollower):
    def read_lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that are new; none that a kill cut short."""
        for line in self.read_new():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a record; none where there is no file."""
    return RecordFollower(path).read_lines()

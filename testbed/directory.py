"""The directory of a run: made by us, marked as ours, and used by one run at a time."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from testbed.command import RunFailed


class DirectoryRefused(RunFailed):
    """The directory is not ours, is in use, or holds a run that this one cannot follow."""


@contextmanager
def run_directory(directory: Path, marker: str, *, maker: str, is_fresh: bool) -> Iterator[IO[str]]:
    """Hold the directory of a run and yield its marker file; raises DirectoryRefused.

    Only a directory with our marker in it is ever emptied; `maker` names who makes such ones.
    """
    if directory.exists() and not directory.is_dir():
        raise DirectoryRefused(f"{directory} is not a directory")
    path = directory / marker
    if directory.exists() and any(directory.iterdir()) and not path.exists():
        raise DirectoryRefused(f"{directory} is not empty and was not made by {maker}; use --data")
    directory.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DirectoryRefused(f"{directory} is in use by another run") from error
        if is_fresh:
            file.truncate(0)
            for other in directory.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
                elif other != path:
                    other.unlink()
        yield file

"""The directory that keeps a local cloud over restarts belongs to one process at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataInUse(RuntimeError):
    """Another process serves from the directory."""


@contextmanager
def held(directory: Path | None) -> Iterator[None]:
    """Create and hold the directory, if one is given; raises DataInUse. A dead holder frees it."""
    if directory is None:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataInUse(f"{directory} is in use by another process") from error
        yield

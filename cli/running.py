"""A program that signals end in order, and its directory, which one run at a time holds."""

import fcntl
import json
import logging
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, Never

from cli.failures import CommandFailed, NoAnswer

# What `lockstep up` keeps in an app's folder, and where it writes how it is reached.
UP_DIRECTORY, UP_MARKER = ".up", "lockstep-up.json"
LOOK_SECONDS = 0.1


def run_program(main: Callable[[Sequence[str]], int]) -> Never:
    """Run `main` on the words of the command line, with SIGTERM ending it as Ctrl-C does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, raise_interrupt)
    # The Azure SDKs log to stderr when nobody listens, such as a client closed in its first second.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    sys.exit(main(sys.argv[1:]))


def raise_interrupt(_signal: int, _frame: FrameType | None) -> Never:
    """End the run by the ordinary way out; a second signal must not disturb that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


class DirectoryRefused(CommandFailed):
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
        for is_last in (False, False, True):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if is_last:
                    raise DirectoryRefused(f"{directory} is in use by another run") from error
                # Whoever looks for a run (find_up) holds it for a moment.
                time.sleep(LOOK_SECONDS)
        if is_fresh:
            file.truncate(0)
            for other in directory.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
                elif other != path:
                    other.unlink()
        yield file


def read_marker(file: IO[str]) -> dict[str, Any]:
    """Return what a run wrote of itself into its marker, nothing where that cannot be read."""
    file.seek(0)
    try:
        found = json.load(file)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def find_up() -> dict[str, Any] | None:
    """Return how the `lockstep up` of this folder, or of the nearest above it, is reached.

    None where there was none. Raises NoAnswer where it does not run any more, or is still starting.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        try:
            file = (folder / UP_DIRECTORY / UP_MARKER).open(encoding="utf-8")
        except OSError:
            continue
        with file:
            try:
                # Whoever runs holds it exclusively, and loses it with its process.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                if "url" in (found := read_marker(file)):
                    return found
                raise NoAnswer(f"`lockstep up` of {folder} is still starting") from None
        raise NoAnswer(
            f"`lockstep up` of {folder} does not run: start it there,"
            " or name another app by LOCKSTEP_URL or --url"
        )
    return None

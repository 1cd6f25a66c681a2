"""A program that signals end in order, and its directory, which one run at a time holds."""

import fcntl
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Never

from cli.failures import CommandFailed


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

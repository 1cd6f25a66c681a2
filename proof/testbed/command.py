"""The common part of all commands of the testbed's users: numbers, exit status, progress."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path

from cli.failures import INTERRUPTED, CommandFailed
from local.testing.failures import CloudFailed

NOT_DONE = 2


class RunFailed(CommandFailed):
    """The run could not be done; the message says why."""


def make_parser(program: str, description: str | None, epilog: str = "") -> ArgumentParser:
    """Make the parser of `python -m program`, whose texts are shown as they are written."""
    return ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
    )


def exit_status(program: str, work: Callable[[], int]) -> int:
    """Do the work of a command and turn what ends it early into its exit status."""
    try:
        return work()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; everything was stopped\n")
        return INTERRUPTED
    except (CommandFailed, CloudFailed, OSError) as error:
        sys.stderr.write(f"{program}: {error}\n")
        return NOT_DONE


def parse_positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"must be a number above zero, not {text!r}")
    return number


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)


def resolve_path(text: str) -> Path:
    return Path(text).resolve()


def show_progress(what: str) -> None:
    """Tell who waits, on standard error, what is being done."""
    sys.stderr.write(f"... {what}\n")
    sys.stderr.flush()

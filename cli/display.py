"""The output of commands: tables and progress for people, JSON for programs."""

import json
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from shared.domain.moments import describe_due, describe_time, parse_seconds

WIDTH_MAX = 10_000


def print_json(document: Any) -> None:
    # In ASCII: it may be shown on a terminal all the same.
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], none: str) -> None:
    """A table, or what to say where there are no rows. Values are shown as they are, not styled."""
    listed = [
        [Text("" if value is None else escape_control(str(value))) for value in row] for row in rows
    ]
    # A file or a pipe has no width: nothing is cut or wrapped there.
    console = Console(width=None if sys.stdout.isatty() else WIDTH_MAX)
    if not listed:
        console.print(none)
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in listed:
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    # Columns are filled with spaces, which nobody wants at the end of a line.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def print_wrapped(text: str) -> None:
    """A paragraph in lines that fit the terminal, or 80 columns where there is none."""
    width, escaped = get_terminal_size().columns, escape_control(text)
    indent = " " * (len(escaped) - len(escaped.lstrip()) + 4)
    lines = textwrap.wrap(
        escaped, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    sys.stdout.write("\n".join(lines) + "\n")


def tell(text: str) -> None:
    """Say something beside the result, or what went wrong."""
    lines = "\n".join(map(escape_control, text.split("\n")))
    sys.stderr.write(f"lockstep: {lines}\n")


def tell_time(moment: str | None) -> str:
    """Return how long ago an ISO time was, and the time itself in UTC; nothing for none."""
    return describe_time(parse_seconds(moment), time.time()) if moment else ""


def tell_due(moment: str | None) -> str:
    """Return the same of a time that may be still to come."""
    return describe_due(parse_seconds(moment), time.time()) if moment else ""


def escape_control(text: str) -> str:
    """Text of strangers, which must not move a terminal's cursor or hide what it says."""
    kept = (one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return "".join(kept)


def open_progress() -> Progress:
    """Progress on standard error, on a terminal only; it leaves nothing there."""
    console = Console(stderr=True)
    return Progress(
        *(SpinnerColumn(), TextColumn("{task.description}")),
        *(TextColumn("{task.completed:.0f}"), TimeElapsedColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

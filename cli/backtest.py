"""The command that runs kept messages again: a gate of a team's own CI, without Spark."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

KEPT = "JSON lines, as `python -m spark.backtest --export` writes, or an archive's folder"
TIME = "a year, a month, a day or a time in ISO 8601, in UTC"


def backtest(
    kept: Annotated[Path, typer.Argument(help=KEPT)],
    folder: Annotated[
        Path, typer.Option("--app", metavar="DIR", help="where function_app.py is (default: here)")
    ] = Path(),
    since: Annotated[
        str | None, typer.Option(help=f"what was written from then on: {TIME}")
    ] = None,
    until: Annotated[str | None, typer.Option(help="what was written before that time")] = None,
    sample: Annotated[
        int | None, typer.Option(help="so many sessions, the same ones each time")
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option(metavar="BUDGET", help="JSON: type, field and count of what may differ"),
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="start each entry from what the run made before it")
    ] = False,
    what_if: Annotated[
        Path | None, typer.Option(help="JSON: session and id of a message; its body, or drop")
    ] = None,
    bisect: Annotated[
        str | None, typer.Option(metavar="A..B", help="the first of these commits that differs")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON document")] = False,
) -> None:
    """Run kept messages again through an app's handlers, and say what would be otherwise."""
    given = {
        "--since": since,
        "--until": until,
        "--sample": sample,
        "--expect": expect,
        "--what-if": what_if,
        "--bisect": bisect,
    }
    words = [f"{name}={value}" for name, value in given.items() if value is not None]
    words += ["--go-on"] * go_on + ["--json"] * as_json
    # A process of its own: what an app imports, and how it ends, is not this command's.
    command = [sys.executable, "-m", "shared.backtest", f"--app={folder}", *words, str(kept)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - ourselves

"""`python -m shared.backtest`, which `lockstep backtest` runs: a backtest without Spark."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stdout
from math import inf
from pathlib import Path

from shared.backtest.app import AppUnusable, load_app
from shared.backtest.bisect import BisectRefused, name_first_commit, run_apart, without_options
from shared.backtest.history import build_history
from shared.backtest.kept_rows import (
    RowsRefused,
    parse_beginning,
    read_sessions,
    sample_sessions,
)
from shared.backtest.rerun import How, run_again
from shared.backtest.sums import (
    NOTHING_RAN,
    Budget,
    Sums,
    describe_sums,
    judge_by_budget,
    read_budget,
)
from shared.backtest.what_if import WhatIf, follow_change, read_what_if
from shared.domain.errors import Misconfigured
from shared.ports import Document

MODULE = "shared.backtest"
SAME, DIFFERENT, REFUSED = 0, 1, 2

DESCRIPTION = """\
Run messages that were processed, and kept by LOCKSTEP_KEEP_INPUTS, again through the handlers of an
app, and say what would be otherwise. Nothing is sent or written. The exit status is 0 where nothing
differs or all of it is expected, 1 where something does, and 2 where the backtest is refused."""


class BacktestRefused(Exception):
    """The backtest makes no sense as it was asked; the text says why."""


def main(words: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if words is None else list(words)
    parser = ArgumentParser(prog="lockstep backtest", description=DESCRIPTION)
    entries = "JSON lines, as python -m spark.backtest --export writes, or an archive's folder"
    parser.add_argument("kept", type=Path, metavar="FILE", help=entries)
    add_backtest_arguments(parser)
    chosen = parser.parse_args(given)
    try:
        # What an app prints is no part of the report.
        with redirect_stdout(sys.stderr):
            found = run_chosen(chosen, given)
        return tell_end(chosen, found)
    except (AppUnusable, BisectRefused, Misconfigured, BacktestRefused, RowsRefused) as error:
        sys.stderr.write(f"backtest: {error}\n")
        return REFUSED


def add_backtest_arguments(parser: ArgumentParser) -> None:
    """The arguments that a backtest takes with Spark, too."""
    add = parser.add_argument
    add("--app", type=Path, default=Path(), metavar="DIR", help="where function_app.py is")
    add(
        "--since",
        type=parse_moment_word,
        default=-inf,
        metavar="DAY",
        help="as 2026-01: from then on",
    )
    add(
        "--until",
        type=parse_moment_word,
        default=inf,
        metavar="DAY",
        help="before this time (UTC)",
    )
    sample = "of this many sessions, the same ones each time"
    add("--sample", type=parse_sample, metavar="N", help=sample)
    budget = "JSON: type, field and count of differences that are expected"
    add("--expect", type=parse_budget_file, metavar="BUDGET", help=budget)
    goes_on = "start each entry from what this run made of the one before, not from what was kept"
    add("--go-on", action="store_true", help=goes_on)
    what_if = "JSON: session and id of a message, and its other body, or drop: true"
    add("--what-if", type=parse_what_if_file, metavar="FILE", help=what_if)
    add("--bisect", metavar="A..B", help="name the first of these commits with a difference")
    add("--json", action="store_true", help="write a JSON document")


def parse_moment_word(text: str) -> float:
    try:
        return parse_beginning(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def parse_sample(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number from 1, not {text!r}")
    return int(text)


def parse_budget_file(text: str) -> Budget:
    return parse_file(text, read_budget)


def parse_what_if_file(text: str) -> WhatIf:
    return parse_file(text, read_what_if)


def parse_file[T](name: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"{name}: {error}") from None


def run_chosen(chosen: Namespace, words: Sequence[str]) -> Sums | str | None:
    """The differences, or those of commits as `run_bisect` has them."""
    refuse_combinations(chosen)
    if chosen.bisect:
        return run_bisect(chosen, MODULE, words)
    handlers = load_app(chosen.app)
    sessions = read_sessions(chosen.kept)
    how = how_chosen(chosen)
    if chosen.what_if:

        def read(names: Collection[str]) -> Mapping[str, Sequence[Document]]:
            return {name: sessions[name] for name in names if name in sessions}

        return follow_change(chosen.what_if, read, handlers, how)
    sums = Sums()
    for name in sample_sessions(sessions, chosen.sample):
        sums.take(name, run_again(build_history(sessions[name]), handlers, how))
    return sums


def refuse_combinations(chosen: Namespace) -> None:
    """Raise BacktestRefused for options of which one would have no effect beside another."""
    if chosen.what_if and (
        chosen.sample or chosen.bisect or chosen.expect is not None or chosen.go_on
    ):
        raise BacktestRefused(
            "--what-if has no sample, no budget and no commits, and goes on by itself"
        )
    if chosen.bisect and chosen.expect is not None:
        raise BacktestRefused("--bisect asks for any difference: leave --expect out")


def how_chosen(chosen: Namespace) -> How:
    return How(chosen.since, chosen.until, chosen.go_on)


def run_bisect(chosen: Namespace, module: str, words: Sequence[str]) -> str | None:
    """The first commit with a difference in a line, None where the last one has none."""
    left = without_options(words, "--bisect", "--app")
    return name_first_commit(chosen.app, chosen.bisect, run_apart(module, left))


def tell_end(chosen: Namespace, found: Sums | str | None) -> int:
    """Write what was found to standard output; returns the exit status."""
    if not isinstance(found, Sums):
        line = found or f"no commit of {chosen.bisect} has a difference"
        said = {"first": found} if chosen.json else f"first commit with a difference: {line}"
        sys.stdout.write((json.dumps(said) if chosen.json else str(said if found else line)) + "\n")
        return DIFFERENT if found else SAME
    wrong = judge_by_budget(found, chosen.expect or {})
    if not found.entries:
        raise BacktestRefused("; ".join([NOTHING_RAN, *describe_sums(found)[1:-1]]))
    if chosen.json:
        sys.stdout.write(json.dumps(found.write() | {"wrong": list(wrong)}, indent=2) + "\n")
    else:
        lines = [*describe_sums(found), *(wrong if chosen.expect is not None else ())]
        if chosen.expect is not None and not wrong:
            lines.append("all differences are expected, and as many as they may be")
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return DIFFERENT if wrong else SAME


if __name__ == "__main__":
    sys.exit(main())

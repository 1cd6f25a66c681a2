"""`python -m bench.path`: how much code one message passes, and what else a newcomer has to read.

Prints each figure beside its aim. Exit status: 0 all aims hold, 1 one does not, 2 the figures could
not be taken. With `--list WAY` it prints the functions of a way instead, in the order of their
first calls.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.path.source import OTHERS, PRODUCT, count_floors, count_lines, find_repeated
from bench.path.ways import record_ways

AIM_MISSED, NOT_MEASURED = 1, 2


@dataclass(frozen=True, slots=True)
class PathFigure:
    """A figure and the highest value that it should have; None where there is no aim."""

    name: str
    value: int
    aim: int | None = None

    @property
    def holds(self) -> bool:
        return self.aim is None or self.value <= self.aim


def take_figures() -> list[PathFigure]:
    paths = asyncio.run(record_ways())
    message, step = paths["pure message"], paths["saga step"]
    send = paths["send in the local broker"]
    return [
        PathFigure("pure message: files", len(message.files), 14),
        PathFigure("pure message: functions", message.functions, 50),
        PathFigure("pure message: depth", message.depth, 9),
        PathFigure("pure message: calls", len(message.calls)),
        PathFigure("pure message: changes of file", message.changes),
        PathFigure("saga step: files", len(step.files), 16),
        PathFigure("saga step: depth", step.depth, 12),
        PathFigure("send in the local broker: files", len(send.files), 10),
        PathFigure("send in the local broker: depth", send.depth, 12),
        PathFigure("floors of the engine", count_floors(), 7),
        PathFigure("repeated names in shared, functions, spark", len(find_repeated(PRODUCT)), 0),
        PathFigure("repeated names in the whole tree", len(find_repeated(PRODUCT + OTHERS))),
        PathFigure("lines without tests", count_lines(PRODUCT + OTHERS), 40_000),
    ]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.path",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", metavar="WAY", help="message, step or send")
    options = parser.parse_args(words)
    if options.list:
        return print_way(options.list)
    try:
        figures = take_figures()
    except OSError as error:
        print(f"python -m bench.path: {error}", file=sys.stderr)
        return NOT_MEASURED
    table = Table("figure", "value", "aim")
    for figure in figures:
        aim = "" if figure.aim is None else f"{figure.aim:,}"
        mark = "" if figure.holds else "  missed"
        table.add_row(figure.name, f"{figure.value:,}", aim + mark)
    Console().print(table)
    return 0 if all(figure.holds for figure in figures) else AIM_MISSED


def print_way(word: str) -> int:
    """Print the functions of the way whose name has this word."""
    paths = asyncio.run(record_ways())
    for name, path in paths.items():
        if word in name:
            for file, function in dict.fromkeys(path.calls):
                print(f"{file} {function}")
            return 0
    print(f"python -m bench.path: no way is called {word!r}: {', '.join(paths)}", file=sys.stderr)
    return NOT_MEASURED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

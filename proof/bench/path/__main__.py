"""`python -m proof.bench.path`: how much code a message passes, and what else a newcomer reads.

Prints each figure beside its aim. Exit status: 0 all aims hold, 1 one does not, 2 the figures could
not be taken. With `--list WAY` it prints the functions of a way instead, in the order of their
first calls, and with `--repeated` the names that several modules define, and where.
"""

import ast
import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp
from rich.console import Console
from rich.table import Table

from proof.bench.path.ways import record_ways
from proof.testbed.cloud import ROOT
from proof.testbed.command import make_parser

AIM_MISSED, NOT_MEASURED = 1, 2
ENGINE = "shared.engine"
PRODUCT = ("function_app.py", "lockstep.py", "functions", "shared", "spark")
OTHERS = ("cli", "proof")
# Every module that is run with `python -m` has a `main`.
CONVENTIONAL = frozenset({"main"})

type Places = Mapping[str, tuple[str, ...]]


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
    samples = count_lines(("spark/samples",))
    return [
        PathFigure("pure message: files", len(message.files), 14),
        PathFigure("pure message: functions", message.functions, 50),
        PathFigure("pure message: depth", message.depth, 9),
        PathFigure("pure message: calls", len(message.calls)),
        PathFigure("pure message: changes of file", message.changes),
        PathFigure("saga step: files", len(step.files), 14),
        PathFigure("saga step: functions", step.functions, 60),
        PathFigure("saga step: depth", step.depth, 11),
        # 10 and 12 before frames were read ahead of Proton, which takes requests that come at once
        # on one link for an error. emulator/docs says what the clients send.
        PathFigure("send in the local broker: files", len(send.files), 12),
        PathFigure("send in the local broker: depth", send.depth, 13),
        PathFigure("floors of the engine", count_floors(), 7),
        PathFigure("repeated names in shared, functions, spark", len(find_repeated(PRODUCT)), 0),
        PathFigure("repeated names in the whole tree", len(find_repeated(PRODUCT + OTHERS))),
        PathFigure("lines of the product", count_lines((*PRODUCT, "cli")) - samples, 25_500),
        PathFigure("lines of tests and of what proves", count_lines(("tests", "proof")), 48_000),
        PathFigure("lines without tests", count_lines(PRODUCT + OTHERS), 40_000),
    ]


def count_floors(package: str = ENGINE) -> int:
    """Return how many modules of a package the longest chain of imports has."""
    graph = grimp.build_graph(package.partition(".")[0])
    modules = {module for module in graph.modules if module.startswith(f"{package}.")}
    height: dict[str, int] = {}

    def measure(module: str) -> int:
        if module not in height:
            below = graph.find_modules_directly_imported_by(module) & modules
            height[module] = 1 + max(map(measure, below), default=0)
        return height[module]

    return max(measure(module) for module in modules)


def find_repeated(folders: tuple[str, ...]) -> Places:
    """Return the names of classes, type aliases and functions that several modules define."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in source_files(folders):
        for name in defined_in(file):
            places[name].append(str(file.relative_to(ROOT)))
    return {
        name: tuple(files)
        for name, files in sorted(places.items())
        if len(files) > 1 and name not in CONVENTIONAL
    }


def defined_in(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text("utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.TypeAlias(name=ast.Name(id=name)):
                yield name


def count_lines(folders: tuple[str, ...]) -> int:
    """Count all lines of the Python files in these folders."""
    return sum(len(file.read_text("utf-8").splitlines()) for file in source_files(folders))


def source_files(folders: tuple[str, ...]) -> list[Path]:
    return [
        file
        for folder in folders
        for file in sorted(
            [ROOT / folder] if folder.endswith(".py") else (ROOT / folder).rglob("*.py")
        )
        if file.exists()
    ]


def main(words: Sequence[str]) -> int:
    parser = make_parser("proof.bench.path", __doc__)
    parser.add_argument("--list", metavar="WAY", help="message, step or send")
    parser.add_argument("--repeated", action="store_true", help="list the repeated names")
    options = parser.parse_args(words)
    if options.list:
        return print_way(options.list)
    if options.repeated:
        for name, files in find_repeated(PRODUCT + OTHERS).items():
            print(f"{name}: {', '.join(files)}")
        return 0
    try:
        figures = take_figures()
    except OSError as error:
        print(f"python -m proof.bench.path: {error}", file=sys.stderr)
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
    print(
        f"python -m proof.bench.path: no way is called {word!r}: {', '.join(paths)}",
        file=sys.stderr,
    )
    return NOT_MEASURED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

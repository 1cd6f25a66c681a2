"""Figures that are read from the source: floors of the engine, repeated names, lines."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

from bench.systems import ROOT

ENGINE = "shared.engine"
PRODUCT = ("function_app.py", "functions", "shared", "spark")
OTHERS = ("local", "simulation", "chaos", "demo", "bench", "testbed", "samples")
# Every module that is run with `python -m` has a `main`.
CONVENTIONAL = frozenset({"main"})

type Places = Mapping[str, tuple[str, ...]]


def count_floors(package: str = ENGINE) -> int:
    """How many modules of a package the longest chain of imports has."""
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
    """Names of classes, type aliases and functions that several modules define, and where."""
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
    """All lines of the Python files in these folders."""
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

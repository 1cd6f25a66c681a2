"""The first line of a docstring names its subject and what comes of it, so that it reads alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A first line that begins with one of these leaves out what it is about.
WITHOUT_SUBJECT = frozenset(
    [
        "As",
        "How",
        "Nobody",
        "Nothing",
        "Of",
        "Others",
        "Somebody",
        "Such",
        "Those",
        "What",
        "When",
        "Where",
        "Whether",
        "Which",
        "Who",
        "Why",
    ]
)
NONE_IN = (
    "function_app.py",
    "lockstep.py",
    "cli",
    "functions",
    "emulator/bench",
    "emulator/conformance",
    "emulator/fuzz",
    "emulator/local",
    "proof",
    "shared",
    "spark",
)


def read_first_lines(place: str) -> Iterator[tuple[str, str]]:
    """Yield (where, first line) of every docstring in a file, or in the files of a folder."""
    path = ROOT / place
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    name = getattr(node, "name", "the module")
                    yield f"{file.relative_to(ROOT)}: {name}", text.splitlines()[0]


@pytest.mark.parametrize("place", NONE_IN)
def test_each_first_line_has_a_subject(place: str) -> None:
    lines = list(read_first_lines(place))

    assert lines
    assert [
        f"{where}: {line}"
        for where, line in lines
        if line.split()[0].strip(",.:;") in WITHOUT_SUBJECT
    ] == []

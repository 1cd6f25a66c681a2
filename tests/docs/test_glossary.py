"""The glossary: every word is defined once, and its synonyms name nothing."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, page

OF_THE_EMULATOR = ("emulator/local", "emulator/bench", "emulator/conformance", "emulator/fuzz")
FOLDERS = ("functions", "shared", "spark", "cli", "proof", "tests", *OF_THE_EMULATOR)
# The names of tests are sentences, in which these mean what they mean every day.
EVERYDAY = frozenset({"told", "behind", "gate", "spread"})
# Names that a library or a user's business gives, each with the reason.
ALLOWED = {
    "paid": "the sample business of orders charges accounts",
    "pay": "the sample business of orders charges accounts",
    "shelf": "the simulated shop keeps its stock on shelves",
}


ROWS = [row for table in page("docs/glossary.md").tables for row in table.rows]


def synonyms() -> dict[str, str]:
    """The words that name nothing, and the word to use instead."""
    return {other: row[0] for row in ROWS for other in re.split(r",\s*", row[3]) if other}


def names_in(source: str) -> Iterator[tuple[str, int]]:
    """Every name that a module gives to something, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name, node.lineno
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def words_of(name: str) -> list[str]:
    """The words of a name in snake case or camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def misnamed(source: str, everyday: frozenset[str] = frozenset()) -> list[str]:
    """What a module names by a synonym, but for everyday words."""
    allowed = ALLOWED.keys() | everyday
    banned = {word: use for word, use in synonyms().items() if word not in allowed}
    return [
        f"line {line}: {name}: say {banned[word]!r} instead of {word!r}"
        for name, line in names_in(source)
        for word in words_of(name)
        if word in banned
    ]


def test_every_word_is_defined_once_and_its_module_is_there() -> None:
    words = Counter(row[0] for row in ROWS)

    assert [word for word, count in words.items() if count > 1] == []
    assert words.keys() & synonyms().keys() == set()
    assert [row[0] for row in ROWS if not (ROOT / row[2].strip("`")).is_file()] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_named_by_a_synonym(folder: str) -> None:
    everyday = EVERYDAY if folder == "tests" else frozenset()
    found = {
        str(file.relative_to(ROOT)): wrong
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (wrong := misnamed(file.read_text("utf-8"), everyday))
    }

    assert found == {}


def test_a_synonym_would_be_seen() -> None:
    assert misnamed("def send_voided(): pass") == [
        "line 1: send_voided: say 'tombstone' instead of 'voided'"
    ]
    assert misnamed("class VoidSender: pass") != []
    assert misnamed("avoided = 1") == []
    assert misnamed("def test_who_is_told(): debt = 1", EVERYDAY) == [
        "line 1: debt: say 'pending' instead of 'debt'"
    ]

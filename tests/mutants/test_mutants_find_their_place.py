"""A mutant finds its code wherever and however that is written, or says that it does not fit."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from tests.mutants import syntax
from tests.mutants.catalogue import MUTANTS
from tests.mutants.loading import applied
from tests.mutants.mutant import Mutant
from tests.mutants.syntax import MutantDoesNotFit, definitions, occurrences, snippets


def mutant(old: str, new: str, definition: str = "function") -> Mutant:
    """A mutant that needs no check."""
    return Mutant("example", "P1", definition, old, new)


def exchanged(code: str, old: str, new: str) -> str:
    """The code with its first change, in the layout of `ast.unparse`."""
    tree = ast.parse(dedent(code))
    before, after = snippets(mutant(old, new))
    next(iter(occurrences(before, tree))).exchange(after)
    return ast.unparse(tree)


def written(code: str) -> str:
    """The code in the layout of `ast.unparse`."""
    return ast.unparse(ast.parse(dedent(code)))


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_every_mutant_fits_and_has_a_judge(one: Mutant) -> None:
    with applied(one):
        pass

    assert one.tests or one.simulated or one.crash_point


def test_no_two_mutants_have_the_same_name() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize(
    ("code", "old", "new", "expected"),
    [
        ("x = f(  a,\n  b)  # why", "f(a, b)", "f(b, a)", "x = f(b, a)"),
        ("if a.halt is not None: go()", "_A_.halt is not None", "False", "if False: go()"),
        ("if a:\n  b()\n  c()", "if a: _BODY_", "while a: _BODY_", "while a:\n  b()\n  c()"),
        ("if a:\n  b()\n  c()", "b()", "pass", "if a:\n  pass\n  c()"),
        ("if a:\n  b()", "b()", "", "if a:\n  pass"),
        ("a = f()\nb = g(a)", "_A_ = f(); _B_ = g(_A_)", "_B_ = g(1)", "b = g(1)"),
        ("r(e, x=1, y=2)", "r(e, y=_Y_, **_REST_)", "r(e, y=-_Y_, **_REST_)", "r(e, y=-2, x=1)"),
        ("f(a, *b)", "f(*_ALL_)", "g(*_ALL_)", "g(a, *b)"),
        ("s[k] = 1", "_A_ = 1", "_A_ = 2", "s[k] = 2"),
        ("f(x.name)", "x._A_", "y._A_", "f(y.name)"),
    ],
)
def test_the_snippet_is_exchanged(code: str, old: str, new: str, expected: str) -> None:
    assert exchanged(code, old, new) == written(expected)


@pytest.mark.parametrize(
    ("code", "old"),
    [
        ("f(a, b)", "f(_A_, _A_)"),
        ("f(a, b)", "f(_A_)"),
        ("r(x=1, y=2)", "r(x=_A_)"),
        ("a < b", "a <= b"),
        ("f(1)", "f(True)"),
        ("b()\na()", "a()\nb()"),
    ],
)
def test_other_code_is_left_alone(code: str, old: str) -> None:
    before, _ = snippets(mutant(old, "0"))

    assert not list(occurrences(before, ast.parse(code)))


def test_definitions_are_named_with_what_they_stand_in() -> None:
    code = """
        TABLE = {}
        class A:
            field: int = 0
            if True:
                async def f(self):
                    local = 0
                    def inner(): ...
    """

    names = [name for name, _ in definitions(ast.parse(dedent(code)))]

    assert names == ["TABLE", "A", "A.field", "A.f", "A.f.inner"]


@pytest.mark.parametrize(
    ("stale", "why"),
    [
        (mutant("x", "y", "no_such_function"), "is defined 0 times"),
        (mutant("x", "y", "__init__"), "is defined 0 times"),
        (mutant("no_such_name", "None", "Committer.commit"), "fits Committer.commit 0 times"),
        (mutant("_A_", "None", "Committer.commit"), "fits Committer.commit 1.. times"),
        (mutant("WriteResult.CREATED", "unknown", "Committer.commit"), "uses .'unknown'."),
    ],
)
def test_a_mutant_that_does_not_fit_the_code_any_more_is_refused(stale: Mutant, why: str) -> None:
    with pytest.raises(MutantDoesNotFit, match=why), applied(stale):
        pass


ONE = """
    from dataclasses import dataclass
    from functools import cache

    LIMITS = (10, 20)

    def limit(): return LIMITS[0]

    @cache
    def cached(): return 1

    @dataclass(slots=True)
    class Sums:
        by: int = 1
        def add(self, n): return n + self.by
        @property
        def double(self): return self.by * 2
        @staticmethod
        def later():
            def inner(): return "now"
            return inner()

    def twice(): ...
"""
TWO = """
    from engine_example.one import LIMITS, Sums

    def twice(): return LIMITS[1], Sums().add(1)
"""


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """A module that uses what another one defines, both open to mutants."""
    folder = tmp_path / "engine_example"
    folder.mkdir()
    (folder / "one.py").write_text(dedent(ONE))
    (folder / "two.py").write_text(dedent(TWO))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(syntax, "ROOT", tmp_path)
    monkeypatch.setattr(syntax, "PACKAGES", ["engine_example"])
    syntax.places.cache_clear()
    yield importlib.import_module("engine_example.two")
    syntax.places.cache_clear()
    for name in [name for name in sys.modules if name.startswith("engine_example")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("definition", "old", "new", "expression", "expected"),
    [
        ("limit", "LIMITS[0]", "30", "one.limit()", 30),
        ("cached", "1", "2", "one.cached.__wrapped__()", 2),
        ("Sums.add", "_A_ + _B_", "_A_ - _B_", "Sums().add(1)", 0),
        ("Sums", "_A_ + _B_", "_A_ - _B_", "Sums().add(1)", 0),
        ("Sums.double", "2", "3", "Sums().double", 3),
        ("Sums.later.inner", "'now'", "'never'", "Sums.later()", "never"),
        ("LIMITS", "20", "40", "twice()", (40, 2)),
        ("two.twice", "LIMITS[1]", "0", "twice()", (0, 2)),
    ],
)
def test_a_change_works_wherever_the_definition_stands(
    example: ModuleType, definition: str, old: str, new: str, expression: str, expected: object
) -> None:
    one = sys.modules["engine_example.one"]
    healthy = eval(expression, vars(example) | {"one": one})

    with applied(mutant(old, new, definition)):
        broken = eval(expression, vars(example) | {"one": one})

    assert broken == expected != healthy
    assert eval(expression, vars(example) | {"one": one}) == healthy


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    ("stale", "why"),
    [
        (mutant("...", "0", "twice"), "defined 2 times"),
        (mutant("int", "str", "Sums.by"), "assigned in a class"),
        (mutant("cache", "dataclass", "cached"), "no code of cached changes"),
    ],
)
def test_a_mutant_that_is_ambiguous_or_changes_nothing_is_refused(stale: Mutant, why: str) -> None:
    with pytest.raises(MutantDoesNotFit, match=why), applied(stale):
        pass

"""Each threat of docs/security.md names tests, and every test that is named exists."""

import ast
import re

import pytest

from tests.docs.local_page import ROOT
from tests.unit.functions.test_access import RIGHTS

PAGE = (ROOT / "docs/security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
THREATS = [
    line
    for line in PAGE.split("## Threats")[1].split("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| threat")
]


@pytest.mark.parametrize("threat", THREATS, ids=lambda line: line.split("|")[1].strip())
def test_a_threat_has_tests_that_exist(threat: str) -> None:
    named = NAMED.findall(threat)

    assert named
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        functions = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        assert name in [function.name for function in functions]


def test_the_threats_are_found() -> None:
    assert len(THREATS) > 10


def test_the_rights_are_those_of_the_routes() -> None:
    rows = dict(re.findall(r"^\| `(Lockstep\.\w+)` \| (.+) \|$", PAGE, re.MULTILINE))

    assert {right: set(re.findall(r"`(\w+)`", names)) for right, names in rows.items()} == {
        right.value: names for right, names in RIGHTS.items()
    }

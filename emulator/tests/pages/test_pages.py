"""The pages are true: links and tests that they name are there, and the programs of README run."""

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest

from local.testing.patience import run_patiently
from pages.pages import ROOT, Page, page

PATHS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
PAGES = [page(str(path.relative_to(ROOT))) for path in PATHS]
README = page("README.md")


def name_of(one: Page) -> str:
    return str(one.path.relative_to(ROOT))


@pytest.mark.parametrize("one", PAGES, ids=name_of)
def test_every_link_leads_to_a_place(one: Page) -> None:
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", one.text)

    assert [link for link in links if not leads_to_a_place(one, *link)] == []


def leads_to_a_place(one: Page, target: str, anchor: str) -> bool:
    path = one.path.parent / target if target else one.path
    return path.exists() and (not anchor or anchor in Page(path, path.read_text()).anchors)


@pytest.mark.parametrize("one", PAGES, ids=name_of)
def test_every_test_and_file_that_a_page_names_exists(one: Page) -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "tests").rglob("test_*.py")]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    there = {n.name for tree in trees for n in ast.walk(tree) if isinstance(n, functions)}
    paths = re.findall(r"`((?:local|tests|docs|bench|conformance|fuzz)/[\w./-]+)`", one.text)

    assert {name for name in re.findall(r"`(test_\w+)`", one.text) if name not in there} == set()
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_configuration_of_readme_is_the_sample() -> None:
    (config,) = README.programs("json")

    assert json.loads(config) == json.loads((ROOT / "local.config.json").read_text())


@pytest.mark.wire
def test_the_programs_of_readme_run_where_only_its_configuration_is(tmp_path: Path) -> None:
    (config,) = README.programs("json")
    (tmp_path / "local.config.json").write_text(config)
    program, tests = README.programs()
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "test_orders.py").write_text(tests)

    for command in (["program.py"], ["-m", "pytest", "-q", "-p", "no:cacheprovider"]):
        ran = run_patiently(
            [sys.executable, *command], seconds=120, cwd=tmp_path, env=dict(os.environ)
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.wire
def test_every_fault_that_readme_arms_is_one(tmp_path: Path) -> None:
    (tmp_path / "arm.py").write_text(
        "import json, sys\n"
        "from local.testing.cloud import running_cloud\n"
        "with running_cloud('--no-hosts') as cloud:\n"
        "    for text in sys.argv[1:]:\n"
        "        cloud.control.arm(json.loads(text))\n"
    )
    (tmp_path / "local.config.json").write_text((ROOT / "local.config.json").read_text())
    faults = re.findall(r"curl -d '(.+?)'", README.text)

    ran = run_patiently([sys.executable, "arm.py", *faults], seconds=60, cwd=tmp_path)

    assert len(faults) == 4
    assert ran.returncode == 0, ran.stderr

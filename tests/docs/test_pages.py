"""Whatever a page names is there: links, places, paths, modules, commands, tests and versions."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PATHS, ROOT, Page, page

PAGES = [page(str(path.relative_to(ROOT))) for path in PATHS]
# The changelog also names what there is no longer.
CURRENT = [one for one in PAGES if one.path.name != "CHANGELOG.md"]
# Folders that begin with a dot are where runs leave what they made, if there was one.
TESTS = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "emulator/tests").rglob("test_*.py")]
FOLDERS = "|".join(p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith("."))


def name_of(one: Page) -> str:
    return str(one.path.relative_to(ROOT))


@pytest.mark.parametrize("one", PAGES, ids=name_of)
def test_every_link_leads_to_a_place(one: Page) -> None:
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", one.text)
    local = [(target, anchor) for target, anchor in links if "://" not in target]

    assert [target for target, _ in local if not (one.path.parent / target).exists()] == []
    assert [link for link in local if not leads_to_a_place(one, *link)] == []


def leads_to_a_place(one: Page, target: str, anchor: str) -> bool:
    path = one.path.parent / target if target else one.path
    return not anchor or path.suffix != ".md" or anchor in Page(path, path.read_text()).anchors


@pytest.mark.parametrize("one", CURRENT, ids=name_of)
def test_every_path_and_module_that_a_page_names_exists(one: Page) -> None:
    words = {part.partition("::")[0] for word in one.words for part in word.split()}
    paths = {word for word in words if re.fullmatch(rf"(?:{FOLDERS})/[\w./-]+", word)}
    modules = set(re.findall(rf"python -m ((?:{FOLDERS})(?:\.\w+)*)", one.text))

    # NAME stands for what the reader chooses.
    missing = {path for path in paths if "NAME" not in path and not (ROOT / path).exists()}
    assert missing | {module for module in modules if not is_command(module)} == set()


def is_command(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


@pytest.mark.parametrize("one", CURRENT, ids=name_of)
def test_every_command_of_make_that_a_page_names_can_be_made(one: Page) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", one.text)) <= targets


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text()))
    return {n.name for n in tree if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("one", CURRENT, ids=name_of)
def test_every_test_that_a_page_names_exists(one: Page) -> None:
    there = {name for path in TESTS for name in functions_in(path)}
    in_files = re.findall(r"`((?:emulator/)?tests/[\w/]+\.py)::(test_\w+)`", one.text)

    assert {name for name in re.findall(r"`(test_\w+)`", one.text) if name not in there} == set()
    assert [(path, name) for path, name in in_files if name not in functions_in(ROOT / path)] == []


def test_every_threat_names_a_test() -> None:
    threats = page("docs/security.md").table("threat").rows

    assert threats
    assert [threat for threat, _, tests in threats if "::test_" not in tests] == []


def test_every_record_of_a_decision_is_in_the_index_once_with_its_title() -> None:
    index = page("docs/adr/README.md").text
    listed = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", index, re.MULTILINE)

    written = []
    for record in sorted((ROOT / "docs/adr").glob("0*.md")):
        number, title = re.findall(r"^# (\d{4})\. (.+)$", record.read_text(), re.MULTILINE)[0]
        written.append((number, record.name, title))
    assert sorted(listed) == written


def test_readme_and_changelog_name_the_versions_that_there_are() -> None:
    readme = page("README.md").text
    project = (ROOT / "pyproject.toml").read_text()
    version = re.findall(r'^version = "(.+)"$', project, re.MULTILINE)[0]
    # What Lockstep requires itself; what that needs in turn follows after an empty line.
    required = (ROOT / "requirements.txt").read_text().split("\n\n")[0]
    pins = re.findall(r"^(\S+)==(\S+)$", required, re.MULTILINE)
    candidates = {name: pin for name, pin in pins if re.search(r"\d(a|b|rc)\d", pin)}
    bundle = json.loads((ROOT / "host.json").read_text())["extensionBundle"]["id"]

    assert f"## [{version}]" in page("CHANGELOG.md").text
    assert f"Version {version}" in readme
    assert dict(re.findall(r"`([\w-]+)`\s(\d[\w.]*(?:a|b|rc)\d+)", readme)) == candidates
    assert ("preview extension bundle" in readme) == bundle.endswith(".Preview")


def test_the_picture_of_a_trace_is_small() -> None:
    assert (ROOT / "docs/trace.svg").stat().st_size < 100_000

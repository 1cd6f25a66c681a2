"""CONTRIBUTING.md is true, and whoever adds something learns which step is missing."""

import ast
import json
import re
from collections.abc import Mapping
from importlib import import_module
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest

from shared.engine.handle.find import find_handlers
from shared.settings import Settings
from tests.docs.pages import ROOT, coded, page
from tests.infra.parity import azure_queues, local_config
from tests.infra.snapshots import read_snapshot, regions_of
from tests.unit.shared.test_settings import ENVIRONMENT

PAGE = page("CONTRIBUTING.md")
HANDLERS = ROOT / "functions/handlers"
MODULES = sorted(path.stem for path in HANDLERS.glob("*.py") if path.stem != "__init__")
# Types that the engine registers for every saga; no module of handlers holds them.
ENGINE_TYPES = {"saga.event", "saga.end"}
FREE_TO_NAME_REGIONS = (
    *("tests", "docs", "emulator", "proof/demo", "spark/samples", "infra/snapshots", "dist"),
)


def test_the_table_of_handlers_is_what_the_app_registers() -> None:
    handlers = find_handlers("functions.handlers", Settings.read(ENVIRONMENT)).by_type
    registered = {name: handler.handle.__module__ for name, handler in handlers.items()}
    rows = PAGE.table("module").rows
    on_page = {name: module.strip("`") for module, types, _ in rows for name in coded(types)}

    assert {module.strip("`") for module, *_ in rows} == set(MODULES)
    assert set(on_page) == set(registered) - ENGINE_TYPES
    in_modules = {n: m.rpartition(".")[2] for n, m in registered.items() if ".handlers." in m}
    assert in_modules.items() <= on_page.items()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_of_handlers_is_exercised(module: str) -> None:
    tree = ast.walk(ast.parse((ROOT / f"tests/unit/functions/test_{module}.py").read_text()))
    calls = [ast.unparse(node.func) for node in tree if isinstance(node, ast.Call)]

    assert "exercise" in calls, f"no test runs `exercise` on the handlers of {module}"


def destinations_in(source: str, constants: Mapping[str, str]) -> set[str]:
    """The queues and topics that outputs name, as text or as a constant of their module."""
    named = re.findall(r'\bto=("?)([\w-]+)', source)
    return {name if quote else constants[name] for quote, name in named}


@pytest.mark.parametrize("module", MODULES)
def test_every_destination_of_a_handler_is_declared_in_every_region(module: str) -> None:
    config = local_config()
    handlers = import_module(f"functions.handlers.{module}")
    wanted = destinations_in(getsource(handlers), vars(handlers))
    wanted.add(config["Hosts"]["Values"]["LOCKSTEP_OUTPUT_QUEUE"])

    for space in config["UserConfig"]["Namespaces"]:
        entities = [*space.get("Queues", []), *space.get("Topics", [])]
        assert wanted <= {entity["Name"] for entity in entities}, space["Name"]
    for region in regions_of(read_snapshot()):
        assert wanted <= azure_queues(read_snapshot(), region).keys()


def test_destinations_are_read_from_text_and_constants() -> None:
    made = 'Output("b", body, to=AUDIT), Output("c", body, to="topic")'

    assert destinations_in(made, {"AUDIT": "lockstep-audit"}) == {"topic", "lockstep-audit"}


def regions_by_place(config: dict[str, Any]) -> dict[str, set[str]]:
    """The regions that process, as each place that names them has them."""
    values = config["Hosts"]["Values"]
    return {
        "namespaces": {space["Name"] for space in config["UserConfig"]["Namespaces"]},
        "hosts": set(config["Hosts"]["Regions"]),
        "LOCKSTEP_REGIONS": set(values["LOCKSTEP_REGIONS"].split(",")),
        "connections": {n.partition("_")[2] for n in values if n.startswith("ServiceBus_")},
        "infra/main.bicep": {*regions_of(read_snapshot())},
    }


def test_every_region_is_named_in_every_place() -> None:
    config = local_config()
    places = regions_by_place(config)
    regions = set.union(*places.values())

    assert {place: regions - named for place, named in places.items() if named != regions} == {}
    assert regions <= set(config["Cosmos"]["Regions"])
    assert regions <= set(config["Hosts"]["Values"]["LOCKSTEP_COSMOS_LOCATIONS"].split(","))


def sources() -> list[Path]:
    """The files of the checkout in which code or configuration could name regions."""
    hidden = tuple(path for path in ROOT.glob(".*") if path.is_dir())
    not_read = {*hidden, *(ROOT / name for name in FREE_TO_NAME_REGIONS)}
    found: list[Path] = []
    for folder, folders, files in ROOT.walk():
        folders[:] = [name for name in folders if folder / name not in not_read]
        found += [folder / name for name in files]
    return [path for path in found if path.suffix in (".py", ".bicep", ".yaml", ".json")]


def test_every_file_that_names_two_regions_is_on_the_page_with_the_reason() -> None:
    naming = {
        str(path.relative_to(ROOT))
        for path in sources()
        if {"east", "west"} <= set(re.findall(r"\b(?:east|west)\b", path.read_text()))
    }

    assert PAGE.table("file").names() == naming


def test_every_folder_and_every_package_of_the_engine_is_on_the_page() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    engine = {path.parent.name for path in (ROOT / "shared/engine").glob("*/__init__.py")}
    (picture, *_) = PAGE.programs("mermaid")

    named = {name.partition("/")[0] for name in PAGE.table("folder").names()}
    assert packages | {"docs", "emulator", "infra"} <= named
    assert engine
    assert [name for name in engine if f"{name}/" not in picture] == []


def test_tasks_run_what_can_be_made_and_hooks_download_nothing() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tasks = re.findall(r'"command": "make ([a-z-]+)', (ROOT / ".vscode/tasks.json").read_text())

    assert tasks
    assert {*tasks} <= {*targets}
    # A commit is held to the versions of `.venv`.
    assert "repo: http" not in (ROOT / ".ci/pre-commit.yaml").read_text()


def test_the_container_has_the_python_of_the_project_and_prepares_itself() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r'^requires-python = ">=(.+)"$', project, re.MULTILINE)

    assert container["image"] == f"python:{version}"
    assert container["postCreateCommand"] == "make .venv/ready-for-tests"

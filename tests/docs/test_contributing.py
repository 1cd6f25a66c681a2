"""CONTRIBUTING.md is true, and whoever adds something learns which step is missing."""

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from local.cosmos.sql.functions import FUNCTIONS
from tests.docs.contributing import (
    HANDLERS,
    destinations_of,
    local_config,
    missing_for_destination,
    missing_for_handler,
    missing_for_query_function,
    missing_for_region,
    named_regions,
)
from tests.docs.local_page import ROOT, coded

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
MODULES = sorted(path.stem for path in HANDLERS.glob("*.py") if path.stem != "__init__")
REGIONS = sorted(named_regions(local_config()))
# Types that the engine registers for every saga; no module of handlers holds them.
ENGINE_TYPES = {"saga.event", "saga.end"}

# Folders that may name regions freely.
FREE_TO_NAME_REGIONS = ("tests", "docs", "proof/demo", "spark/samples")
READ_FOR_REGIONS = (".py", ".bicep", ".yaml", ".json")
REASON = re.compile(r"^\s*(#|//) Two regions\b.{10,}", re.MULTILINE)


def section(title: str) -> str:
    """A section of the page, up to the next one."""
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def table(title: str, first: str) -> list[list[str]]:
    """The rows, as cells, of the table of a section whose first column has this head."""
    (found,) = [part for part in section(title).split("\n\n") if part.startswith(f"| {first} |")]
    rows = found.strip().splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def handlers_on_page() -> dict[str, set[str]]:
    """The message types in the table of handlers, by module."""
    rows = table("Add a handler", "module")
    return {row[0].strip("` "): set(coded(row[1])) for row in rows}


@pytest.fixture(scope="module")
def registered() -> dict[str, str]:
    """The module of each message type, as the app itself registers them."""
    program = (
        "import json, function_app as a\n"
        "by_type = a.handlers.by_type.items()\n"
        "print(json.dumps({name: handler.handle.__module__ for name, handler in by_type}))"
    )
    environment = os.environ | {
        "LOCKSTEP_REGION": "east",
        "LOCKSTEP_REGIONS": "east",
        "ServiceBus_east": "Endpoint=sb://nowhere/",
        "Cosmos": "AccountEndpoint=http://nowhere/;AccountKey=bm90aGluZw==;",
    }
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, check=True
    )
    return dict(json.loads(run.stdout))


def found_modules(registered: dict[str, str]) -> set[str]:
    return {module.rpartition(".")[2] for module in registered.values()}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_missing_for_a_handler(module: str, registered: dict[str, str]) -> None:
    missing = missing_for_handler(module, found_modules(registered), handlers_on_page())

    assert not missing, "\n".join(missing)


def test_the_table_of_handlers_is_what_the_app_registers(registered: dict[str, str]) -> None:
    page = handlers_on_page()

    assert set(page) == set(MODULES)
    assert set().union(*page.values()) == set(registered) - ENGINE_TYPES
    for name, module in registered.items():
        if module.startswith("functions.handlers."):
            assert name in page[module.rpartition(".")[2]]


def test_the_steps_of_a_handler_are_the_parts_that_can_be_missing() -> None:
    missing = missing_for_handler("example", set(), {})

    assert missing == [
        "functions/handlers/example.py: there is no such module",
        "functions/handlers/example.py: the app finds no `handlers` in it",
        "tests/unit/functions/test_example.py: no test runs `exercise` on the handlers of example",
        "CONTRIBUTING.md: the table of handlers has no row for example",
    ]
    assert_steps_name_the_files(
        "Add a handler", [line.replace("example", "NAME") for line in missing]
    )


def assert_steps_name_the_files(title: str, missing: list[str]) -> None:
    """Every file that a sentence begins with stands in the numbered steps of a section."""
    steps = coded(section(title))
    files = {sentence.partition(":")[0] for sentence in missing}
    assert files
    assert files - set(steps) == set()


@pytest.mark.parametrize("module", MODULES)
def test_every_destination_of_a_handler_is_declared_in_every_region(module: str) -> None:
    config = local_config()
    output_queue = config["Hosts"]["Values"]["LOCKSTEP_OUTPUT_QUEUE"]

    # Without a name it is the app's output queue.
    for name in destinations_of(HANDLERS / f"{module}.py"):
        missing = missing_for_destination(name or output_queue, config)
        assert not missing, "\n".join(missing)


def test_destinations_are_read_from_text_and_constants(tmp_path: Path) -> None:
    module = tmp_path / "audit.py"
    module.write_text(
        'AUDIT = "lockstep-audit"\n'
        'made = Output("a", body), Output("b", body, to=AUDIT), Output("c", body, to="topic")\n'
        'more = Output("d", body, None, "fourth")\n'
    )

    assert destinations_of(module) == {"", "lockstep-audit", "topic", "fourth"}


def test_a_destination_that_nobody_can_read_is_refused(tmp_path: Path) -> None:
    module = tmp_path / "audit.py"
    module.write_text('made = Output("a", body, to=name_of(body))\n')

    with pytest.raises(ValueError, match=r"audit\.py, line 1: `to` is neither text nor a constant"):
        destinations_of(module)


def test_the_steps_of_a_destination_are_the_parts_that_can_be_missing() -> None:
    missing = missing_for_destination("new-destination", local_config())

    assert missing == [
        sentence
        for region in ("east", "west")
        for sentence in (
            f"local.config.json: namespace {region} has no queue or topic new-destination",
            f"infra/region.bicep: region {region} gets no queue or topic new-destination",
        )
    ]
    assert_steps_name_the_files("Add a destination", missing)


@pytest.mark.parametrize("region", REGIONS)
def test_nothing_is_missing_for_a_region(region: str) -> None:
    missing = missing_for_region(region, local_config())

    assert not missing, "\n".join(missing)


def test_the_steps_of_a_region_are_the_parts_that_can_be_missing() -> None:
    missing = missing_for_region("new_region", local_config())

    assert missing == [
        "local.config.json: UserConfig.Namespaces has no namespace new_region",
        "local.config.json: Hosts.Regions gives no host and no task hub new_region",
        "local.config.json: LOCKSTEP_REGIONS does not name new_region",
        "local.config.json: no connection ServiceBus_ of new_region",
        "local.config.json: Cosmos.Regions does not name new_region",
        "local.config.json: LOCKSTEP_COSMOS_LOCATIONS does not name new_region",
        "infra/main.bicep: `regions` does not name new_region",
        "infra/main.bicep: not every app has the settings ServiceBus_ of new_region",
        "infra/main.bicep: not every app may send to the namespace of new_region",
        "azure.yaml: no service of the name new_region",
        "azure.yaml: no hooks for new_region",
    ]
    assert_steps_name_the_files("Add a region", missing)


def test_a_region_that_only_one_part_names_is_noticed() -> None:
    config = deepcopy(local_config())
    config["Hosts"]["Regions"].append("new_region")

    assert "new_region" in named_regions(config)
    assert "local.config.json: LOCKSTEP_REGIONS does not name new_region" in missing_for_region(
        "new_region", config
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_missing_for_a_query_function(name: str) -> None:
    missing = missing_for_query_function(name)

    assert not missing, "\n".join(missing)


def test_the_steps_of_a_query_function_are_the_parts_that_can_be_missing() -> None:
    missing = missing_for_query_function("NEW_FUNCTION")

    assert missing == [
        "local/cosmos/sql/functions.py: FUNCTIONS has no NEW_FUNCTION",
        "docs/local.md: no query among the honoured ones shows NEW_FUNCTION",
        "tests/wire/test_cosmos_functions.py: no test calls NEW_FUNCTION",
    ]
    assert_steps_name_the_files("Add a query function to the local Cosmos DB", missing)


def names_two_regions(text: str) -> bool:
    return bool(re.search(r"\beast\b", text) and re.search(r"\bwest\b", text))


def sources() -> list[Path]:
    """The files of the checkout in which code or configuration could name regions."""
    hidden = tuple(path for path in ROOT.glob(".*") if path.is_dir())
    not_read = {*hidden, *(ROOT / name for name in (*FREE_TO_NAME_REGIONS, "dist"))}
    found: list[Path] = []
    for folder, folders, files in ROOT.walk():
        folders[:] = [name for name in folders if folder / name not in not_read]
        found += [folder / name for name in files]
    return [path for path in found if path.suffix in READ_FOR_REGIONS]


def test_every_file_that_names_two_regions_says_why() -> None:
    explained = {coded(row[0])[0] for row in table("Add a region", "file")}
    naming = {
        str(path.relative_to(ROOT)): REASON.search(path.read_text()) is not None
        for path in sources()
        if names_two_regions(path.read_text())
    }

    assert {"local.config.json", "infra/main.bicep", "shared/testkit/regions.py"} <= set(naming)
    without = {file for file, says_why in naming.items() if not says_why} - explained
    assert without == set(), f"say in a comment that begins with `Two regions` why: {without}"
    assert explained <= set(naming), "CONTRIBUTING.md explains files that name no two regions"


def test_every_folder_is_on_the_page() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    folders = {
        name.strip("/").partition("/")[0]
        for row in table("The house", "folder")
        for name in coded(" ".join(row))
    }

    assert packages | {"docs", "infra"} <= folders


def test_every_package_of_the_engine_is_in_the_picture() -> None:
    picture = PAGE.split("```mermaid\n", 2)[1].split("```")[0]
    packages = {path.parent.name for path in (ROOT / "shared/engine").glob("*/__init__.py")}

    assert packages
    assert {name for name in packages if f"{name}/" not in picture} == set()


def test_every_path_on_the_page_exists() -> None:
    paths = {
        path
        for path in coded(re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
        if re.fullmatch(r"[\w.-]+(/[\w.-]*)+", path) and "NAME" not in path
    }

    assert {"shared/domain", "local/cosmos/sql/functions.py", ".venv/bin/python"} - paths == {
        ".venv/bin/python"
    }
    assert {path for path in paths if not (ROOT / path).exists()} == set()


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def test_every_command_on_the_page_can_be_run() -> None:
    commands = coded(section("Run things"))
    wanted = {command.split()[1] for command in commands if command.startswith("make ")}
    (test,) = [command for command in commands if "pytest" in command]
    (module,) = [command.split()[2] for command in commands if "-m proof.bench" in command]

    assert wanted
    assert wanted <= make_targets()
    assert (ROOT / test.split()[3]).exists()
    assert (ROOT / module.replace(".", "/") / "__main__.py").exists()


def test_the_tasks_of_vs_code_run_commands_that_exist() -> None:
    tasks = json.loads((ROOT / ".vscode/tasks.json").read_text())["tasks"]
    commands = [task["command"] for task in tasks if task["command"].startswith("make ")]

    assert {"check", "test", "lint", "demo", "up", "chaos"} <= {c.split()[1] for c in commands}
    assert {command.split()[1] for command in commands} <= make_targets()


def test_the_hooks_before_a_commit_are_the_steps_of_make_lint() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (targets,) = re.findall(r"^lint: ([a-z ]+?)  ##", makefile, re.MULTILINE)
    recipes = [
        makefile.split(f"\n{target}: ", 1)[1].split("\n\n", 1)[0] for target in targets.split()
    ]
    steps = [
        line.strip("\t@").replace("$(RUN)", ".venv/bin/python")
        for recipe in recipes
        for line in recipe.split("\n")[1:]
    ]
    hooks = re.findall(
        r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE
    )

    # A hook is given the files of the commit, where the Makefile names the folder.
    assert [hook.removesuffix(" --force-exclude") for hook in hooks] == [
        step.removesuffix(" .") for step in steps
    ]
    assert "repo: http" not in (ROOT / ".pre-commit-config.yaml").read_text()


def test_the_container_has_the_python_of_the_project_and_prepares_itself() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    wanted = re.findall(
        r'^requires-python = ">=(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )

    assert container["image"] == f"python:{wanted[0]}"
    assert container["postCreateCommand"] == "make .venv/ready-for-tests"

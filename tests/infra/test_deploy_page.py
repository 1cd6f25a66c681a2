"""docs/deploy.md names what exists: files, outputs, parameters and roles."""

import re

from tests.infra.parity import KNOWN_ROLES, ROOT
from tests.infra.snapshots import INFRA

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


def declared(word: str, file: str) -> set[str]:
    """The names that a file of Bicep declares as `param` or `output`."""
    text = (INFRA / file).read_text(encoding="utf-8")
    return {*re.findall(rf"^{word} (\w+)", text, re.MULTILINE)}


def test_every_file_the_page_names_exists() -> None:
    named = set(re.findall(r"(?<!/)infra/[\w.]+", PAGE))

    assert {path.name for path in INFRA.iterdir()} <= {name.partition("/")[2] for name in named}
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_every_environment_name_on_the_page_is_an_output_or_read_by_azd_or_its_hooks() -> None:
    outputs = declared("output", "main.bicep")
    filled = set(re.findall(r"Variable\('(\w+)'", (INFRA / "main.bicepparam").read_text()))
    read_by_hooks = set(re.findall(r'"(LOCKSTEP_\w+)"', (INFRA / "hooks.py").read_text()))

    named = set(re.findall(r"LOCKSTEP_\w+", PAGE))

    assert named
    assert named <= outputs | filled | read_by_hooks


def test_every_parameter_on_the_page_is_declared() -> None:
    parameters = declared("param", "main.bicep") | declared("param", "region.bicep")
    # `az cosmosdb` has a word of its own for a location.
    on_command_lines = set(re.findall(r"\b(?!regionName)(\w+)=(?:trial|eastus2|west)\b", PAGE))
    in_the_text = {"journalLocations"}

    assert in_the_text <= set(re.findall(r"`(\w+)`", PAGE))
    assert on_command_lines | in_the_text <= parameters


def test_every_role_on_the_page_is_one_that_is_assigned() -> None:
    names = set(re.findall(r"(?:Azure Service Bus|Cosmos DB Built-in) Data \w+", PAGE))

    assert names
    assert names <= set(KNOWN_ROLES.values())

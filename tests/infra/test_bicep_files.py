"""Every Bicep file is compiled and keeps the house rules, and plays the part its name says."""

import re

import pytest

from tests.infra.bicep import INFRA, Kind, parse, read
from tests.infra.compiler import COMPILER, RECORD, compile_everything, hashes
from tests.infra.parity import deployment, region_of
from tests.infra.rules import breaches

FILES = sorted(path.name for path in INFRA.glob("*.bicep"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_breaks_no_house_rule(name: str) -> None:
    assert breaches(read(name)) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("var x = {", "tree-sitter cannot read"),
        ("var x = true ? a : b.c", "put parentheses into 'true ? a : b.c'"),
        ("param name string\nvar x = name", "name is not described"),
        (
            "resource a 'A.B/c@2023-05-01-preview' = { name: 'a' }",
            "2023-05-01-preview is a preview",
        ),
        ("output o string = a.listKeys().primaryMasterKey", "listKeys is a secret"),
        ("var c = 'Endpoint=sb://x;SharedAccessKey=abc'", "a secret is written out"),
    ],
)
def test_a_file_that_breaks_a_house_rule_is_named(source: str, said: str) -> None:
    assert any(said in one for one in breaches(parse(source, INFRA / "broken.bicep")))


@pytest.mark.skipif(COMPILER is None, reason="not run: there is no Bicep compiler")
def test_the_compiler_takes_every_file_without_a_word() -> None:
    assert compile_everything() == ""


def test_these_are_the_files_that_the_compiler_took() -> None:
    assert hashes() == RECORD.read_text("utf-8"), "run `python -m tests.infra.compiler`"


def test_main_deploys_every_other_file() -> None:
    deployed = {module.target for module in read("main.bicep").of(Kind.MODULE).values()}

    assert {*FILES} - deployed == {"main.bicep"}


def test_main_composes_and_roles_are_assigned_where_tests_look_for_them() -> None:
    types = {
        name: {found.target.partition("@")[0] for found in read(name).of(Kind.RESOURCE).values()}
        for name in FILES
    }
    assigning = {name for name in FILES if any("oleAssignments" in one for one in types[name])}

    assert types["main.bicep"] == {"Microsoft.Resources/resourceGroups"}
    files = {"access.bicep", "journal_access.bicep", "people.bicep", "producers.bicep"}
    assert assigning == files


def test_the_parameter_file_gives_what_main_requires_and_repeats_its_defaults() -> None:
    declared = read("main.bicep").of(Kind.PARAMETER)
    lines = (INFRA / "main.bicepparam").read_text("utf-8")
    given = re.findall(r"param (\w+) = readEnvironmentVariable\('\w+'(?:, '(.*)')?\)", lines)
    names = {name for name, _ in given}

    required = {name for name, found in declared.items() if found.expression is None}
    assert len(given) == lines.count("\nparam ")
    assert required <= names <= declared.keys()
    for name, default in given:
        if name not in required:
            assert default == deployment().value(name)


def test_each_output_of_main_can_be_worked_out() -> None:
    main = deployment()

    outputs = {name: main.output(name) for name in main.bicep.of(Kind.OUTPUT)}

    assert outputs["AZURE_RESOURCE_GROUP"] == "rg-trial"
    for app, region in zip(outputs["LOCKSTEP_APPS"], ("east", "west"), strict=True):
        assert str(app["app"]).startswith(f"func-lockstep-{region}-")
        address = rf"lockstep-{region}-.+\.servicebus\.windows\.net"
        assert re.fullmatch(address, str(app["serviceBus"]))


@pytest.mark.parametrize("region", ["east", "west"])
def test_the_storage_account_has_a_name_that_azure_takes(region: str) -> None:
    """It is asked for letters and digits, 24 at most; 13 of them are the unique string."""
    storage = region_of(region).resource("storage")

    assert re.fullmatch(r"st[a-z0-9]{1,9}<uniqueString\(.+\)>", str(storage["name"]))
    assert storage["kind"] == "StorageV2"

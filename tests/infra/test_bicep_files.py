"""The Bicep files are what the snapshots were made of, and none of them touches a secret."""

import re

import pytest

from tests.infra.compiler import COMPILER, REFUSED, compile_everything
from tests.infra.snapshots import FOLDER, INFRA, Resources, load

FILES = sorted(INFRA.glob("*.bicep"))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="not run: there is no Bicep compiler")

# What reads a key, or is named like one, and what holds one.
SECRET = re.compile(
    r"\blist[A-Z]\w*\(|\b\w*(?:primary|secondary|account|shared\w*)key\b|\w*connectionstring\b"
    r"|\w*password\w*|(?:SharedAccessKey|AccountKey|InstrumentationKey|sig)\w*=",
    re.IGNORECASE,
)
# Names that look like secrets and are not, each with the reason.
HARMLESS = {
    "ConnectionString": "of Application Insights, where DisableLocalAuth makes it a mere address",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "the setting that holds it",
    "noScmPassword": "forbids a publishing password",
    "noFtpPassword": "forbids a publishing password",
}


@needs_compiler
@pytest.mark.slow
def test_the_compiler_and_its_linter_say_nothing_and_its_format_changes_nothing() -> None:
    # What is recent depends on the day, and no test does.
    assert [one for one in compile_everything().said if "use-recent-" not in one] == []


@needs_compiler
@pytest.mark.slow
def test_the_snapshots_are_what_the_compiler_makes() -> None:
    made = compile_everything().snapshots

    assert made.keys() == {path.name.partition(".")[0] for path in FOLDER.iterdir()}
    for name, snapshot in made.items():
        assert snapshot == load(FOLDER / f"{name}.snapshot.json"), (
            "run `python -m tests.infra.compiler`, and look at what has changed in the snapshots"
        )


@needs_compiler
@pytest.mark.slow
def test_what_cannot_be_deployed_is_refused_with_a_sentence_before_anything_is_created() -> None:
    for line, said in compile_everything().refused.items():
        assert REFUSED[line] in said


@needs_compiler
@pytest.mark.slow
def test_azd_names_what_is_missing_where_nobody_has_named_an_address() -> None:
    assert "Run `azd env set LOCKSTEP_EMAILS ADDRESS" in compile_everything().unaddressed


@needs_compiler
@pytest.mark.slow
def test_a_file_that_breaks_a_rule_is_refused() -> None:
    assert compile_everything().broken >= {
        *("use-description-params", "use-user-defined-types", "no-hardcoded-location"),
        *("outputs-should-not-contain-secrets", "no-hardcoded-env-urls", "BCP089"),
    }


def test_no_file_reads_a_key_or_writes_one() -> None:
    for path in FILES:
        code = re.sub(r"^ *//.*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        found = {match[0] for match in SECRET.finditer(code)}
        assert found - HARMLESS.keys() == set(), path.name


@pytest.mark.parametrize(
    "line",
    [
        "output o string = a.listKeys().primaryMasterKey",
        "var c = 'Endpoint=sb://x;SharedAccessKey=abc'",
        "param adminPassword string",
        "value: account.properties.primaryConnectionString",
    ],
)
def test_a_line_that_reads_a_key_or_writes_one_is_found(line: str) -> None:
    assert {match[0] for match in SECRET.finditer(line)} - HARMLESS.keys()


def test_no_resource_is_of_a_preview(resources: Resources) -> None:
    """But one type, which has no other version with groups of categories."""
    previews = {one["type"] for one in resources if one["apiVersion"].endswith("-preview")}

    assert previews <= {"Microsoft.Insights/diagnosticSettings"}


def test_main_deploys_every_other_file_and_creates_groups_alone() -> None:
    source = (INFRA / "main.bicep").read_text(encoding="utf-8")
    created = {*re.findall(r"^resource \w+ '([^@]+)@", source, re.MULTILINE)}

    assert {*re.findall(r"^module \w+ '(.+)' =", source, re.MULTILINE)} == {
        path.name for path in FILES if path.name != "main.bicep"
    }
    assert created == {"Microsoft.Resources/resourceGroups"}


def test_what_is_found_by_its_name_alone_waits_until_it_is_there() -> None:
    """No snapshot says what waits for what; a name that is known before is no reason to wait."""
    source = (INFRA / "main.bicep").read_text(encoding="utf-8")
    modules = re.split(r"^(?:output|module) ", source, flags=re.MULTILINE)[1:]
    by_name = [one for one in modules if re.search(r"namesOf\(|account(?:Name|Id)\b", one)]

    assert by_name
    for module in by_name:
        # Front Door only looks for the apps when they are there.
        is_first = module.startswith(("journal ", "front "))
        assert is_first or "region[" in module or "dependsOn: [region]" in module, module


def test_roles_are_assigned_where_a_reader_looks_for_them() -> None:
    assigning = {path.name for path in FILES if "oleAssignments@" in path.read_text("utf-8")}

    assert assigning == {
        *("access.bicep", "journal_access.bicep", "people.bicep", "producers.bicep"),
    }


def test_the_parameter_file_gives_what_main_requires_and_repeats_its_defaults() -> None:
    source = (INFRA / "main.bicep").read_text(encoding="utf-8")
    declared = dict(re.findall(r"^param (\w+) \S+(?: = '(.*)')?$", source, re.MULTILINE))
    required = {*re.findall(r"^param (\w+) \w+$", source, re.MULTILINE)}
    lines = (INFRA / "main.bicepparam").read_text(encoding="utf-8")
    given = dict(re.findall(r"^param (\w+) = (.+)$", lines, re.MULTILINE))

    assert required == {"environmentName", "location", "emails"}
    assert required <= given.keys() <= declared.keys()
    for name in given.keys() - required:
        found = re.fullmatch(r"readEnvironmentVariable\('\w+', '(.*)'\)", given[name])
        assert found, name
        assert found[1] == declared[name]

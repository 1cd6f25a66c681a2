"""Every Bicep file keeps the house rules, and the files play the parts their names say."""

import os
import shutil
from pathlib import Path

import pytest

from local.testing.patience import run_patiently
from tests.infra.bicep import INFRA, Kind, read
from tests.infra.parity import deployment, load
from tests.infra.rules import breaches, required

FILES = sorted(INFRA.glob("*.bicep"))
# `az bicep install` puts it where no PATH looks.
PLACES = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".azure" / "bin")])
COMPILER = shutil.which("bicep", path=PLACES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_breaks_no_house_rule(path: Path) -> None:
    assert breaches(read(path)) == []


@pytest.mark.skipif(COMPILER is None, reason="there is no Bicep compiler: `az bicep install`")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_compiler_takes_a_file(path: Path) -> None:
    assert COMPILER is not None
    command = [COMPILER, "build", str(path), "--stdout", "--no-restore"]
    done = run_patiently(command, seconds=60)

    assert done.returncode == 0, done.stderr


def test_main_composes_and_declares_nothing_but_resource_groups() -> None:
    resources = read(INFRA / "main.bicep").of(Kind.RESOURCE).values()

    assert {found.target for found in resources} == {
        "Microsoft.Resources/resourceGroups@2024-03-01"
    }


def test_roles_are_assigned_in_files_of_their_own() -> None:
    assigning = {
        path.name
        for path in FILES
        for resource in read(path).of(Kind.RESOURCE).values()
        if "roleassignments" in resource.target.lower()
    }

    files = {"access.bicep", "journal_access.bicep", "people.bicep", "producers.bicep"}
    assert assigning == files


def test_the_parameter_file_gives_what_main_requires_and_repeats_its_defaults() -> None:
    declared = read(INFRA / "main.bicep").of(Kind.PARAMETER)
    given = load(INFRA / "main.parameters.json")["parameters"]

    assert given.keys() <= declared.keys()
    assert required(declared) <= given.keys()
    for name in given.keys() - required(declared):
        default = given[name]["value"].partition("=")[2].rstrip("}")
        assert default == deployment().value(name)


def test_each_output_of_main_can_be_worked_out() -> None:
    main = deployment()

    outputs = {name: str(main.output(name)) for name in main.bicep.of(Kind.OUTPUT)}

    assert outputs["AZURE_RESOURCE_GROUP"] == "rg-trial"
    apps = main.output("LOCKSTEP_APPS")
    assert isinstance(apps, list)
    for app, region in zip(apps, ("east", "west"), strict=True):
        assert isinstance(app, dict)
        assert str(app["app"]).startswith(f"func-lockstep-{region}-")
        assert str(app["serviceBus"]).startswith(f"lockstep-{region}-")
        assert str(app["serviceBus"]).endswith(".servicebus.windows.net")

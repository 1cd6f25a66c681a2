"""Azure on one machine is a product that is installed, and honours what this one asks of it."""

import json
import tomllib
from importlib.metadata import distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import local
from cli.regions import CONFIG
from local.config import load_config
from local.functions_host.config.host_json import load
from tests.infra.test_package import needed_with, pins

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "emulator/pyproject.toml").read_text("utf-8"))["project"]


def test_it_is_installed_from_its_folder() -> None:
    assert Path(str(local.__file__)).is_relative_to(ROOT / "emulator")
    installed = distribution(PROJECT["name"])
    assert installed.version == PROJECT["version"]
    assert {one.name: one.value for one in installed.entry_points} == PROJECT["scripts"]


def test_whatever_it_needs_has_one_version_that_it_accepts() -> None:
    pinned = pins("requirements.txt") | pins(".ci/constraints.txt")
    installed = pins("requirements.txt") | pins(".ci/requirements-dev.txt")
    needed = [Requirement(text) for text in PROJECT["dependencies"]]

    for one in needed:
        assert one.specifier.contains(installed[canonicalize_name(one.name)]), one
    in_turn = {name: version(name) for one in needed for name in needed_with(one.name)}
    assert in_turn.items() <= pinned.items()


def test_our_own_host_and_configuration_are_honoured() -> None:
    limits = load(ROOT, {})
    config = load_config(CONFIG)

    own = json.loads((ROOT / "host.json").read_text())["extensions"]["serviceBus"]
    assert limits.service_bus.max_concurrent_sessions == own["maxConcurrentSessions"]
    assert [container.name for container in config.cosmos.containers] == ["journal", "leases"]
    assert config.session_queue == "lockstep"

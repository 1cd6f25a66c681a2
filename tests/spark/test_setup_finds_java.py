"""`tools/setup` finds Java 17 or newer, or installs it; where it cannot, it says so clearly."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.patience import run_patiently

SETUP = Path(__file__).parents[2] / "tools/setup"
# With no Python on the PATH, this is what setup says once it has passed Java.
PASSED = "setup: no Python 3.13 or newer found on PATH"
NEEDED = ("bash", "dirname", "sed", "env", "cat", "grep", "chmod", "cp")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with nothing on it but what a test puts there."""

    root: Path

    def command(self, name: str, *lines: str, at: str = "bin") -> None:
        """A command that does this."""
        file = self.root / at / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(("#!/usr/bin/env bash", *lines)) + "\n")
        file.chmod(0o755)

    def java(self, version: str, at: str = "bin") -> None:
        """A Java, as it introduces itself where options are taken from the environment."""
        said = ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g", f'openjdk version "{version}"')
        self.command("java", *(f"echo '{line}' >&2" for line in said), at=at)

    def user(self, number: int) -> None:
        """Who runs setup."""
        self.command("id", f"echo {number}")

    def apt(self, release: int, brings: str) -> None:
        """An apt that knows one release of Java, and what is on the PATH once it is installed."""
        self.java(brings, at="later")
        self.command("apt-cache", f'[[ "$2" == openjdk-{release}-jre-headless ]]')
        install = f'[[ "$*" == *openjdk* ]] && cp {self.root}/later/java {self.root}/bin/java'
        self.command("apt-get", f'echo "$*" >> {self.root}/apt.log', install, "true")

    def setup(self, **environment: str) -> str:
        """Run setup; the last line it says."""
        checkout = self.root / "checkout/tools"
        checkout.mkdir(parents=True)
        shutil.copy(SETUP, checkout)
        run = run_patiently(
            [checkout / "setup"],
            seconds=30,
            env={"PATH": str(self.root / "bin"), "HOME": str(self.root)} | environment,
        )
        assert run.returncode == 1
        return run.stderr.splitlines()[-1]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A compiler, curl, npm, a browser, the tools of every system, and an ordinary user."""
    machine = Machine(tmp_path)
    for name in ("cc", "curl", "npm", "chromium"):
        machine.command(name)
    for name in NEEDED:
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    machine.user(1000)
    return machine


@pytest.mark.parametrize("version", ["17.0.15", "21.0.4", "25"])
def test_a_java_that_spark_takes_is_left_alone(machine: Machine, version: str) -> None:
    machine.java(version)

    assert machine.setup().startswith(PASSED)


@pytest.mark.parametrize("version", [None, "1.8.0_392", "11.0.22"])
def test_without_it_an_ordinary_user_is_told_what_to_install(
    machine: Machine, version: str | None
) -> None:
    if version:
        machine.java(version)

    said = machine.setup()

    assert said.startswith("setup: Spark needs Java 17 or newer: install one")
    assert "openjdk-17-jre-headless" in said


@pytest.mark.parametrize("release", [17, 21])
def test_root_gets_the_first_release_that_apt_knows(machine: Machine, release: int) -> None:
    machine.user(0)
    machine.apt(release, brings=f"{release}.0.1")

    assert machine.setup().startswith(PASSED)
    log = (machine.root / "apt.log").read_text().splitlines()
    assert log == ["update -qq", f"install -y -qq openjdk-{release}-jre-headless"]


def test_a_java_that_hides_the_installed_one_is_named(machine: Machine) -> None:
    machine.user(0)
    machine.java("11.0.22")
    machine.apt(17, brings="11.0.22")

    assert machine.setup() == (
        "setup: installed Java 17, but java on PATH is another one: set JAVA_HOME"
    )


def test_java_home_counts_as_it_does_for_spark(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.java("11.0.22", at="old/bin")

    old = str(machine.root / "old")
    assert f"there is none in JAVA_HOME={old}" in machine.setup(JAVA_HOME=old)


def test_a_java_of_java_home_needs_none_on_the_path(machine: Machine) -> None:
    machine.java("21.0.4", at="new/bin")

    assert machine.setup(JAVA_HOME=str(machine.root / "new")).startswith(PASSED)

"""`.ci/setup` finds Java 17 or newer, or installs it; where it cannot, it says so clearly."""

from pathlib import Path

import pytest

from tests.setup_machine import Machine, make_machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that lacks nothing but Java."""
    machine = make_machine(tmp_path)
    machine.python()
    return machine


@pytest.mark.parametrize("version", ["17.0.15", "21.0.4", "25"])
def test_a_java_that_spark_takes_is_left_alone(machine: Machine, version: str) -> None:
    machine.java(version)

    machine.setup()


@pytest.mark.parametrize("version", [None, "1.8.0_392", "11.0.22"])
def test_without_it_an_ordinary_user_is_told_what_to_install(
    machine: Machine, version: str | None
) -> None:
    if version:
        machine.java(version)

    (said,) = machine.setup(status=1)

    assert said == (
        "setup: missing Java 17 or newer for Spark: install what is missing (packages of Debian: "
        "openjdk-17-jre-headless), with java on PATH or in JAVA_HOME"
    )


@pytest.mark.parametrize("release", [17, 21])
def test_root_gets_the_first_release_that_apt_knows(machine: Machine, release: int) -> None:
    machine.user(0)
    machine.apt(release=release)
    machine.java(f"{release}.0.1", at="index")

    said = machine.setup()

    package = f"openjdk-{release}-jre-headless"
    assert machine.log[:2] == ["apt-get -qq update", f"apt-get -qq install -y {package}"]
    assert f"setup: installing {package} by apt-get" in said
    assert "debconf" not in "".join(said)


def test_a_java_that_hides_the_installed_one_is_named(machine: Machine) -> None:
    machine.user(0)
    machine.java("11.0.22")
    machine.java("11.0.22", at="index")
    machine.apt()

    assert machine.setup(status=1)[-1] == (
        "setup: installed what apt-get has, and still missing: Java 17 or newer for Spark. What is "
        "on PATH may be another one: set JAVA_HOME or PYTHON"
    )


def test_what_apt_says_is_shown_where_it_fails(machine: Machine) -> None:
    machine.user(0)
    machine.apt(fails=True)

    assert machine.setup(status=1)[-2:] == [
        "debconf: delaying package configuration",
        "setup: apt-get could not install openjdk-17-jre-headless",
    ]


def test_java_home_counts_as_it_does_for_spark(machine: Machine) -> None:
    machine.java("17.0.15")
    machine.java("11.0.22", at="old/bin")

    old = str(machine.root / "old")
    (said,) = machine.setup(status=1, JAVA_HOME=old)
    assert f"there is none in JAVA_HOME={old}" in said


def test_a_java_of_java_home_needs_none_on_the_path(machine: Machine) -> None:
    machine.java("21.0.4", at="new/bin")

    machine.setup(JAVA_HOME=str(machine.root / "new"))

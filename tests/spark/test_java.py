"""Java for Spark: found by setup, with one collector, and started from recorded classes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark import class_archive
from spark.job import runtime
from spark.job.failures import JobRefused
from spark.job.runtime import CHOSEN_COLLECTOR, CLASS_ARCHIVE, JAVA_VARIABLES, build_configuration
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


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JAVA_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def read_collectors() -> list[str]:
    """The collectors that the jobs ask Java for on one machine."""
    return re.findall(
        CHOSEN_COLLECTOR, build_configuration("local[2]")["spark.driver.extraJavaOptions"]
    )


def test_it_is_the_serial_one_which_gives_back_what_is_free() -> None:
    assert read_collectors() == ["-XX:+UseSerialGC"]
    options = build_configuration("local[2]")["spark.driver.extraJavaOptions"]
    assert "-XX:-ShrinkHeapInSteps" in options


@pytest.mark.parametrize("variable", JAVA_VARIABLES)
def test_one_that_the_environment_names_stays_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "-Xmx2g -XX:+UseG1GC")

    assert read_collectors() == []


def test_a_cluster_keeps_its_own() -> None:
    assert "spark.driver.extraJavaOptions" not in build_configuration("spark://host:7077")


OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.skipif(not CLASS_ARCHIVE.exists(), reason="this Java makes no class archive")
def test_java_has_read_the_classes_of_spark_from_the_archive(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm

    assert str(CLASS_ARCHIVE) in spark.sparkContext.getConf().get(OPTIONS, "")
    # Java says so only if it has accepted every archive that it was given.
    assert "sharing" in java.java.lang.System.getProperty("java.vm.info")


def test_without_an_archive_java_is_told_of_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runtime, "CLASS_ARCHIVE", tmp_path / "none.jsa")

    assert "SharedArchiveFile" not in build_configuration("local[2]")[OPTIONS]


def test_when_java_writes_no_archive_none_is_left_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old archive may be of another Java, and a half-written one would make Java crash."""
    archive = tmp_path / "lockstep-spark.jsa"
    archive.write_bytes(b"old")

    @contextmanager
    def open_failing(_master: str, java_options: str) -> Iterator[SparkSession]:
        Path(java_options.partition("=")[2].rstrip('"')).write_bytes(b"half of it")
        raise JobRefused("Spark did not start")
        yield

    monkeypatch.setattr(class_archive, "CLASS_ARCHIVE", archive)
    monkeypatch.setattr(class_archive, "open_spark", open_failing)

    assert class_archive.main([]) == 2
    assert "class archive: Spark did not start\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

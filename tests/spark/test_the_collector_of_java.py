"""Java takes one collector: ours gives memory back, and one that a user has named stays."""

import re

import pytest

from spark.job.runtime import CHOSEN_COLLECTOR, JAVA_VARIABLES, build_configuration


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

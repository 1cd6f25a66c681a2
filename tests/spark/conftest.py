"""One Spark for the whole folder; starting it costs more than all the tests."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from local.cloud import Cloud
from spark import feed, reconcile, replay
from spark.feeding import dataframe
from spark.job.runtime import start_spark
from spark.send.datasource import EventWriter
from tests.cloud import running_cloud
from tests.spark.bookings import Bank, settings
from tests.spark.recording import RecordingDataSource

# These jobs are over before Java's second compiler would pay.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {"JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK_JAVA}"}

# A few rows need no second thoughts about a plan, and compiling it costs more than running it.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two tasks at a time, each tried three times, as a cluster would."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUICK.items():
            patch.setenv(name, value)
        session = start_spark("local[2,3]")
    for name, value in SMALL.items():
        session.conf.set(name, value)
    yield session
    session.stop()


def pytest_itemcollected(item: pytest.Item) -> None:
    for fixture, marker in (("spark", "spark"), ("cloud", "wire")):
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(marker)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with running_cloud(logs=Path(tmp_path_factory.mktemp("logs"))) as cloud:
        yield cloud


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """The folder in which the recording data source writes."""
    folder = tmp_path / "sent"
    folder.mkdir()
    return folder


@pytest.fixture
def bank(spark: SparkSession, tmp_path: Path, sink: Path) -> Bank:
    return Bank(spark, tmp_path)


@pytest.fixture
def jobs_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs use this Spark instead of starting one."""
    for program in (feed, reconcile, replay):
        monkeypatch.setattr(program, "open_spark", lambda _master: nullcontext(spark))


@pytest.fixture
def recorded_here(jobs_here: None, sink: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataframe, "EventWriter", partial(EventWriter, source=RecordingDataSource))
    for name, value in settings(sink).items():
        monkeypatch.setenv(name, value)

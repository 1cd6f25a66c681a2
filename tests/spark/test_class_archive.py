"""Spark starts with the classes that setup has recorded, and without them where there are none."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark import class_archive
from spark.job import runtime
from spark.job.failures import JobRefused
from spark.job.runtime import CLASS_ARCHIVE, build_configuration

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.spark
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

"""One Spark for the whole folder; starting it costs more than all the tests."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.job.runtime import start_spark

# These jobs are over before Java's second compiler would pay.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

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
        patch.setenv("JDK_JAVA_OPTIONS", f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK_JAVA}")
        session = start_spark("local[2,3]")
    for name, value in SMALL.items():
        session.conf.set(name, value)
    yield session
    session.stop()

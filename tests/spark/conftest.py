"""One Spark for the whole folder; starting it costs more than all the tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.runtime import start


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two tasks at a time, each tried three times, as a cluster would."""
    session = start("local[2,3]")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()

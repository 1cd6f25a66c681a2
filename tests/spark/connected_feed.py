"""A feed over Spark Connect: `python -m tests.spark.connected_feed SERVER FOLDER [POINT]`.

FOLDER has lockstep.zip and the rows, and gets the manifest and the result. At POINT, a method of
Manifest, SIGKILL strikes this process.
"""

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import SparkSession

from spark.feeding import FeedConfig, feed, select_unfed
from spark.feeding.manifest import Manifest
from spark.package import ARCHIVE
from tests.spark.bookings import DOCUMENT, GROUP, SCHEMA

MANIFEST, ROWS_FILE, RESULT_FILE = "fed", "rows.json", "result.json"


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    server, place, *point = sys.argv[1:]
    for name in point:
        setattr(Manifest, name, die)
    folder = Path(place)
    spark = SparkSession.builder.remote(server).getOrCreate()
    spark.addArtifacts(str(folder / ARCHIVE), pyfile=True)
    options = FeedConfig(
        GROUP,
        manifest=f"cosmos+{folder / MANIFEST}",
        source="booked",
        rejects=str(folder / "rejects"),
        lanes=2,
    )
    rows = spark.read.schema(SCHEMA).json(str(folder / ROWS_FILE))
    result = feed(select_unfed(rows, DOCUMENT, options), DOCUMENT, options)
    (folder / RESULT_FILE).write_text(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()

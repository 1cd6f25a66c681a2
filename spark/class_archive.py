"""Let Spark start in half the time on this machine: `python -m spark.class_archive --help`.

Java reads, checks and links some ten thousand classes of Spark before the first row is read, each
time anew. A class data archive holds them as they are in memory afterwards. Java makes one at the
end of a program that has loaded them (`-XX:ArchiveClassesAtExit`, JEP 350).
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from pyspark.sql import functions as F  # noqa: N812

from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import CLASS_ARCHIVE, MASTER_DEFAULT, open_spark, stop_java

DESCRIPTION = f"""\
Record the classes that Spark loads, so that every later Spark job on this machine starts in half
the time. It takes up to a minute, and a file of 160 MB: {CLASS_ARCHIVE}. Do it again
after a change of Java or of pyspark, because Java does not use a file that another one has made."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the archive anew; the exit status is 2 if there is none afterwards."""
    ArgumentParser(prog="python -m spark.class_archive", description=DESCRIPTION).parse_args(
        arguments
    )
    console = JobConsole("class archive")

    def job() -> int:
        console.log("recording the classes that Spark loads, for up to a minute")
        record_classes()
        console.log(f"Spark starts with {CLASS_ARCHIVE} from now on")
        return 0

    return console.run(job)


def record_classes() -> None:
    """Start Spark, run a query, and let Java write the archive when it ends."""
    CLASS_ARCHIVE.unlink(missing_ok=True)
    # Java would crash if it found a file that is only half written.
    draft = CLASS_ARCHIVE.with_suffix(f".{os.getpid()}")
    try:
        with open_spark(MASTER_DEFAULT, f'"-XX:ArchiveClassesAtExit={draft}"') as spark:
            rows = spark.range(9).select((F.col("id") % 3).cast("string").alias("key"))
            rows.groupBy("key").count().collect()
        # Java writes it when it ends, also by SIGTERM.
        stop_java()
        if not draft.exists():
            raise JobRefused("Java wrote no class archive; Spark starts without one")
        draft.replace(CLASS_ARCHIVE)
    finally:
        draft.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())

"""Start a Spark session for a job, without its log messages, and always stop it."""

import os
import re
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Never

from pyspark import SparkContext
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession

from spark.job.failures import JobRefused

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# The exit status that shells use: 128 and the number of SIGINT.
INTERRUPTED = 130
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOOPBACK = "127.0.0.1"
# On one machine the Python workers that send are slower than code of Java's first compiler. The
# second compiler, running beside them, takes half of the processor time of a feed of one day, and a
# quarter of Java's in a feed of a year.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
# Java's usual collector runs beside the tasks, which costs a tenth of the processor time of a feed.
# This one does not, and is the only such one that gives memory back: as soon as it is asked, and so
# much that at most two fifths of the heap are free. Java takes one collector only, so one that is
# chosen already stays.
COLLECTOR = "-XX:+UseSerialGC -XX:MaxHeapFreeRatio=40 -XX:-ShrinkHeapInSteps"
CHOSEN_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
# Spark's classes as Java has read and checked them once (spark.class_archive). With this file Spark
# starts in half the time. If it is not of the very same Java and jars, Java does without it, and is
# told not to speak of it.
CLASS_ARCHIVE = Path(sys.prefix, "lockstep-spark.jsa")
QUIET_ARCHIVE = "-Xlog:cds=off -Xlog:cds+dynamic=off"
JAVA_NEEDED = "Spark needs Java 17 or newer (JAVA_HOME, or java on the PATH)"
# A shuffle is divided for a table of ten million rows in a heap of one gigabyte. Spark merges what
# is small, also in what is cached, so that a small job has as few tasks as there are cores.
SHUFFLES = {
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
# Two tasks at a time, each tried four times: with Spark's own default of one try, a single dropped
# connection makes a whole feed fail.
MASTER_DEFAULT = "local[2,4]"
# spark-submit sets this variable for the Python process it starts.
GATEWAY = "PYSPARK_GATEWAY_PORT"

type SignalHandler = Callable[[int, FrameType | None], object]


class JobInterrupted(SystemExit):
    """Ctrl-C or SIGTERM came. It is no Exception, so that no code takes it for a failure.

    It is no KeyboardInterrupt either, because pyspark logs that one with its stack.
    """


@contextmanager
def open_spark(master: str | None, java_options: str = "") -> Iterator[SparkSession]:
    """A session that is stopped at the end of the `with`, however that is left.

    Without a master it is the one that spark-submit or the platform has chosen, else one on this
    machine, whose Java also gets `java_options`. A session that is running already is used as it
    is, and left running. Raises JobRefused if there is no Java, Spark does not start, or the
    session has no driver of its own, and JobInterrupted on a signal.
    """
    running = SparkSession.getActiveSession() if master is None else None
    if running is not None:
        require_driver(running)
        yield running
        return
    # A process that spark-submit has started has a JVM already, and its master is chosen.
    if GATEWAY not in os.environ:
        require_java()
        master = master or MASTER_DEFAULT
    spark = None
    with handle_signals(raise_interrupted):
        try:
            # If it were interrupted while it starts, Spark would leave its JVM running.
            with delay_signals():
                spark = start_spark(master, java_options)
            yield spark
        finally:
            if isinstance(sys.exception(), JobInterrupted):
                stop_java()
            elif spark is not None:
                spark.stop()


def has_driver(spark: SparkSession) -> bool:
    """Say whether this process is the driver. That of a session of Spark Connect is another one."""
    try:
        _ = spark.sparkContext
    except PySparkAttributeError:
        return False
    return True


def require_driver(spark: SparkSession) -> None:
    """Raise JobRefused for a session of Spark Connect.

    Files are created, and tasks tell what they have sent, by the driver's own process.
    """
    if not has_driver(spark):
        raise JobRefused(
            "this is a session of Spark Connect, without a driver of its own: run the job on "
            "classic compute, or call feed with a manifest whose steps are in the journal's "
            "account, as in cosmos+abfss://... (docs/spark.md)"
        )


@contextmanager
def handle_signals(handler: SignalHandler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def delay_signals() -> Iterator[None]:
    held: list[int] = []
    with handle_signals(lambda number, _frame: held.append(number)):
        yield
    for number in held:
        signal.raise_signal(number)


def raise_interrupted(_number: int, _frame: FrameType | None) -> Never:
    """Raise JobInterrupted, so that everything that is open is closed on the way out."""
    raise JobInterrupted(INTERRUPTED)


def stop_java() -> None:
    """Terminate our JVM: an interrupted call leaves the connection to it out of step."""
    gateway = SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is not None:
        java.terminate()
        java.wait()


def start_spark(master: str | None, java_options: str = "") -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Nothing here uses pandas, but pyspark warns about the version that it finds installed.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    builder = SparkSession.builder.appName("lockstep")
    if master is not None:
        builder = builder.master(master)
    for name, value in build_configuration(master, java_options).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        why = f"Spark did not start: {error.getCondition()}"
        raise JobRefused(f"{why}; {JAVA_NEEDED}") from None


def build_configuration(master: str | None, java_options: str = "") -> dict[str, str]:
    """Spark's settings for the jobs. On one machine it listens on loopback and has no web page."""
    # A second attempt of a running task would double the load, and the task would be no faster.
    settings = {
        "spark.speculation": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Tables that are shuffled by session are not shuffled again to be joined by session and
        # key, and what fits is not sorted for it.
        "spark.sql.requireAllClusterKeysForCoPartition": "false",
        "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
        # Nearly every text differs from all others, so that looking for repeated ones takes a sixth
        # of the time of judging, and makes what is cached no smaller.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
    }
    if is_one_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        logging = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
        archive = f'"-XX:SharedArchiveFile={CLASS_ARCHIVE}"' if CLASS_ARCHIVE.exists() else ""
        java = [logging, FIRST_COMPILER, choose_collector(), QUIET_ARCHIVE, archive, java_options]
        settings |= {
            "spark.driver.extraJavaOptions": " ".join(filter(None, java)),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            **SHUFFLES,
        }
    return settings


def return_memory(spark: SparkSession) -> None:
    """On one machine, let Java give back what it does not need: Python's workers need some next.

    Elsewhere this does nothing, as the driver's memory is not that of the tasks.
    """
    if has_driver(spark) and is_one_machine(spark.sparkContext.master):
        java = spark.sparkContext._jvm
        java.java.lang.System.gc()  # type: ignore[union-attr]


def is_one_machine(master: str | None) -> bool:
    """Return whether the driver's process runs the tasks."""
    return master is not None and master.startswith("local")


def choose_collector() -> str:
    """The options for Java's collector; none if the environment has chosen one."""
    given = " ".join(os.environ.get(name, "") for name in JAVA_VARIABLES)
    return "" if CHOSEN_COLLECTOR.search(given) else COLLECTOR


def require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise JobRefused(f"no Java found; {JAVA_NEEDED}")

"""A quiet Spark session, started and always stopped."""

import os
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
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# As shells have it: 128 and the number of SIGINT.
INTERRUPTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM)
LOOPBACK = "127.0.0.1"
# On one machine the senders are slower than code of Java's first compiler; its second one, at work
# beside them, costs a day's feed half of its processor time and a year's a quarter of Java's.
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
JAVA_NEEDED = "Spark needs Java 17 or newer (JAVA_HOME, or java on the PATH)"
# Two tasks at a time, each tried four times: Spark's own default of one try loses a whole feed to
# one dropped connection.
MASTER_DEFAULT = "local[2,4]"
# What spark-submit tells the Python process it starts.
GATEWAY = "PYSPARK_GATEWAY_PORT"

type Handler = Callable[[int, FrameType | None], object]


class SparkUnavailable(Exception):
    """Spark cannot run on this machine."""


class Interrupted(SystemExit):
    """Ctrl-C or SIGTERM came; not an Exception, so that nothing on the way takes it for a failure.

    pyspark logs a KeyboardInterrupt with its stack; this one it lets pass in silence.
    """


@contextmanager
def spark_session(master: str | None) -> Iterator[SparkSession]:
    """A session that says nothing and is stopped at the end, whatever the end is.

    Without a master it is what spark-submit or the platform has chosen, else one on this machine;
    a session that was there before is used as it is, and left running. Raises SparkUnavailable when
    there is no Java or it does not start, Interrupted on a signal.
    """
    running = SparkSession.getActiveSession() if master is None else None
    if running is not None:
        yield running
        return
    if not is_submitted():
        require_java()
        master = master or MASTER_DEFAULT
    spark = None
    with signals(leave):
        try:
            # Interrupted while it starts, Spark would leave its JVM behind.
            with signals_held():
                spark = start(master)
            yield spark
        finally:
            if isinstance(sys.exception(), Interrupted):
                end_java()
            elif spark is not None:
                spark.stop()


@contextmanager
def signals(handler: Handler) -> Iterator[None]:
    """Let a handler have Ctrl-C and SIGTERM while in the context."""
    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def signals_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait till the end of the context."""
    held: list[int] = []
    with signals(lambda number, _frame: held.append(number)):
        yield
    for number in held:
        signal.raise_signal(number)


def leave(_number: int, _frame: FrameType | None) -> Never:
    """Leave by the ordinary way out, so that everything opened is closed."""
    raise Interrupted(INTERRUPTED)


def end_java() -> None:
    """End the JVM this process started: cut off in mid-sentence, it cannot be asked to stop."""
    gateway = SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is not None:
        java.terminate()
        java.wait()


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and so knows the master and has a JVM."""
    return GATEWAY in os.environ


def start(master: str | None) -> SparkSession:
    """Start Spark with this interpreter for its workers."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Nothing here uses pandas; it is only found installed.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    builder = SparkSession.builder.appName("lockstep")
    if master is not None:
        builder = builder.master(master)
    for name, value in configuration(master).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        why = f"Spark did not start: {error.getCondition()}"
        raise SparkUnavailable(f"{why}; {JAVA_NEEDED}") from None


def configuration(master: str | None) -> dict[str, str]:
    """What the jobs need of Spark. On one machine it listens on loopback and has no web page."""
    # Two attempts of one task at the same time would double the load and gain nothing.
    settings = {
        "spark.speculation": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings |= {
            "spark.driver.extraJavaOptions": " ".join(
                (f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", FIRST_COMPILER)
            ),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
        }
    return settings


def require_java() -> None:
    """Raise SparkUnavailable when no Java can be found where Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SparkUnavailable(f"no Java found; {JAVA_NEEDED}")

"""A long stage of a job as people see it: a bar on a terminal, a line now and then elsewhere."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark.progress import Ear

BAR_SECONDS, LINES_SECONDS = 0.25, 10.0
BAR_CELLS = 24
CLEAR_LINE = "\r\x1b[K"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a stage is: so much of a total, in `unit`s, after so many seconds."""

    done: int
    total: int
    unit: str
    seconds: float

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def pace(self) -> str:
        """Rate and time left of rows; tasks are too uneven to reckon with."""
        if self.unit != "rows" or not self.done or self.seconds <= 0:
            return ""
        rate = self.done / self.seconds
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
        return f"{shown}/s, {lasting((self.total - self.done) / rate)} left"

    def words(self) -> str:
        """All of it in one phrase."""
        said = f"{self.done:,} of {self.total:,} {self.unit} ({self.share:.0%})"
        return f"{said}, {self.pace}" if self.pace else said

    def bar(self) -> str:
        """The part that is done, drawn."""
        full = int(self.share * BAR_CELLS)
        return f"[{'#' * full}{'-' * (BAR_CELLS - full)}]"


def lasting(seconds: float) -> str:
    """A time for people: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@dataclass(slots=True)
class Stage:
    """A stage under way. It counts the rows that tasks tell of, or else Spark's own tasks."""

    job: str
    name: str
    spark: SparkSession
    rows: int | None
    is_terminal: bool
    ear: Ear | None = None
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def address(self) -> str | None:
        """Where tasks tell how far they are."""
        return None if self.ear is None else self.ear.address

    def reached(self) -> Reached | None:
        """How far it is now; None where there is nothing to count."""
        heard = self.ear.heard() if self.ear else None
        if heard is not None and self.rows:
            return Reached(heard, self.rows, "rows", self.clock() - self.began)
        done, total = tasks(self.spark)
        return Reached(done, total, "tasks", self.clock() - self.began) if total else None

    def watch(self) -> None:
        """Show it until it is over."""
        while not self.over.wait(BAR_SECONDS if self.is_terminal else LINES_SECONDS):
            try:
                reached = self.reached()
            except Py4JError:
                break  # Java is gone; the job's own thread finds that too, and says why.
            if reached is not None:
                self.show(reached)
        if self.is_terminal:
            write(CLEAR_LINE)

    def show(self, reached: Reached) -> None:
        """Draw the bar over the last one, or say a line."""
        if not self.is_terminal:
            write(f"{self.job}, {self.name}: {reached.words()}\n")
            return
        line = f"{self.job}: {self.name} {reached.bar()} {reached.words()}"
        write(CLEAR_LINE + line[: shutil.get_terminal_size().columns - 1])


@contextmanager
def shown(job: str, name: str, rows: int | None = None, *, is_quiet: bool) -> Iterator[Stage]:
    """Show a stage while in the context; with `rows`, tasks may tell of theirs at its address."""
    spark = SparkSession.active()
    ear = listening(spark) if rows and not is_quiet else None
    stage = Stage(job, name, spark, rows, is_terminal=sys.stderr.isatty(), ear=ear)
    watcher = threading.Thread(target=stage.watch, name=f"{job} {name}", daemon=True)
    try:
        if not is_quiet:
            watcher.start()
        yield stage
    finally:
        stage.over.set()
        if watcher.is_alive():
            watcher.join()
        if ear is not None:
            ear.close()


def listening(spark: SparkSession) -> Ear | None:
    """An ear for the tasks, where the driver can have one."""
    try:
        return Ear(driver_host(spark))
    except OSError:
        return None  # Spark's own tasks are counted instead.


def driver_host(spark: SparkSession) -> str:
    """The name under which executors reach the driver."""
    return spark.sparkContext.getConf().get("spark.driver.host") or LOOPBACK


def tasks(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the stages that Spark is at are done, and of how many."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [info for info in found if info is not None]
    return sum(i.numCompletedTasks for i in known), sum(i.numTasks for i in known)


def write(text: str) -> None:
    """To stderr, at once."""
    sys.stderr.write(text)
    sys.stderr.flush()

"""The output of a job to stderr: log lines, how far its long steps are, and why it failed.

On a terminal the progress is a bar; elsewhere it is a line every ten seconds.
"""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from azure.core.exceptions import AzureError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from shared.settings import InvalidSettings
from spark.job.failures import JobRefused, SparkFailure, find_root_cause
from spark.job.progress import TaskReports
from spark.job.runtime import INTERRUPTED, JobInterrupted, has_driver

FAILED = 2
BAR_SECONDS, LINES_SECONDS = 0.25, 10.0
BAR_CELLS = 24
CLEAR_LINE = "\r\x1b[K"
# How soon the end of a partition is noted.
NOTED_SECONDS = 1.0

type NoteEnd = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class JobConsole:
    """Writes a job's lines to stderr. A quiet one writes only why there is no result."""

    job: str
    is_quiet: bool = False

    def log(self, line: str) -> None:
        if not self.is_quiet:
            write_stderr(f"{self.job}: {line}\n")

    def run(self, job: Callable[[], int]) -> int:
        """The job's exit status; 2 if it was refused or failed, 130 if it was interrupted.

        A failure that a user can act on becomes one line; any other exception is raised.
        """
        try:
            return job()
        except (JobRefused, InvalidSettings) as error:
            return self.report_failure(str(error))
        except AzureError as error:
            line = error.message.partition("\n")[0]
            return self.report_failure(f"the account cannot be reached: {line}")
        except SparkFailure as error:
            return self.report_failure(find_root_cause(error))
        except (KeyboardInterrupt, JobInterrupted):
            self.log("interrupted; what was sent stays sent, running it again completes it")
            return INTERRUPTED

    def report_failure(self, line: str) -> int:
        """Write why there is no result; returns the exit status for it."""
        write_stderr(f"{self.job}: {line}\n")
        return FAILED

    @contextmanager
    def show_progress(
        self, step: str, rows: int | None = None, note_end: NoteEnd | None = None
    ) -> "Iterator[ProgressDisplay]":
        """Show how far a step is while in the context.

        With `rows`, how many there are to send, the display has `reports` for the tasks that send
        them. Without it, or until a task has told of any, Spark's tasks are counted. `note_end` is
        called with each partition that has sent all it has, also by a quiet console, in a thread of
        its own.
        """
        spark = SparkSession.active()
        reports = None
        if rows and has_driver(spark):
            reports = TaskReports(spark.sparkContext, listens=not self.is_quiet)
        display = ProgressDisplay(self, step, spark, rows, reports, note_end)
        thread = threading.Thread(target=display.watch, name=f"{self.job} {step}", daemon=True)
        try:
            if note_end or not self.is_quiet:
                thread.start()
            yield display
        finally:
            display.over.set()
            if thread.is_alive():
                thread.join()
            if reports is not None:
                reports.close()


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a step: `done` of `total`, in `unit`s, after so many seconds."""

    done: int
    total: int
    unit: str
    seconds: float

    @property
    def share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0

    def describe(self) -> str:
        phrase = f"{self.done:,} of {self.total:,} {self.unit} ({self.share:.0%})"
        # Tasks take too different times to tell a rate or the time left from their number.
        if self.unit != "rows" or not self.done or self.seconds <= 0:
            return phrase
        rate = self.done / self.seconds
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
        return f"{phrase}, {shown}/s, {format_duration((self.total - self.done) / rate)} left"

    def draw_bar(self) -> str:
        full = int(self.share * BAR_CELLS)
        return f"[{'#' * full}{'-' * (BAR_CELLS - full)}]"


def format_duration(seconds: float) -> str:
    """A time for people: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@dataclass(slots=True)
class ProgressDisplay:
    """Shows a running step. It counts the rows that tasks tell of, or else Spark's own tasks."""

    console: JobConsole
    step: str
    spark: SparkSession
    rows: int | None
    reports: TaskReports | None = None
    note_end: NoteEnd | None = None
    noted: set[int] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def is_terminal(self) -> bool:
        return sys.stderr.isatty()

    def measure(self) -> StepProgress | None:
        """Return how far the step is now; None if there is nothing to count."""
        seconds = time.monotonic() - self.began
        sent = self.reports.count_rows() if self.reports else None
        if sent is not None and self.rows:
            return StepProgress(sent, self.rows, "rows", seconds)
        tracker = self.spark.sparkContext.statusTracker()
        found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stages = [info for info in found if info is not None]
        total = sum(info.numTasks for info in stages)
        done = sum(info.numCompletedTasks for info in stages)
        return StepProgress(done, total, "tasks", seconds) if total else None

    def watch(self) -> None:
        interval = BAR_SECONDS if self.is_terminal else LINES_SECONDS
        due_at = time.monotonic() + interval
        while not self.over.wait(min(interval, NOTED_SECONDS)):
            try:
                self.note_ends()
                progress = self.measure() if time.monotonic() >= due_at else None
            except Py4JError:
                break  # Java is gone. The job's own thread notices that too, and reports it.
            if progress is not None and not self.console.is_quiet:
                self.show(progress)
                due_at = time.monotonic() + interval
        with suppress(Py4JError):
            self.note_ends()
        if self.is_terminal and not self.console.is_quiet:
            write_stderr(CLEAR_LINE)

    def note_ends(self) -> None:
        """Tell `note_end` of the partitions that have ended since the last call."""
        if self.reports is None or self.note_end is None:
            return
        for partition in sorted(self.reports.ended.keys() - self.noted):
            self.noted.add(partition)
            self.note_end(partition)

    def show(self, progress: StepProgress) -> None:
        if not self.is_terminal:
            write_stderr(f"{self.console.job}, {self.step}: {progress.describe()}\n")
            return
        line = f"{self.console.job}: {self.step} {progress.draw_bar()} {progress.describe()}"
        write_stderr(CLEAR_LINE + line[: shutil.get_terminal_size().columns - 1])


def write_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()

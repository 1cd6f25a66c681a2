"""How far a step is: received from tasks, and shown as a bar on a terminal, else as lines."""

import io
import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from local.testing.patience import eventually
from spark.feeding.numbering import number_facts
from spark.job.console import CLEAR_LINE, JobConsole, ProgressDisplay, StepProgress, format_duration
from spark.job.progress import TaskProgress, TaskReports, gather_ends
from spark.send.datasource import EventWriter
from tests.spark.bookings import GROUP, fact, facts_of, settings
from tests.spark.recording import CLOSING, RecordingDataSource, recorded

SECONDS_MAX = 30.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_rows_are_shown_with_share_rate_and_time_left() -> None:
    assert StepProgress(12_000, 48_000, "rows", 60).describe() == (
        "12,000 of 48,000 rows (25%), 200/s, 3 min 0 s left"
    )
    assert StepProgress(12_000, 48_000, "rows", 60).draw_bar() == "[######------------------]"
    assert StepProgress(3, 8, "tasks", 60).describe() == "3 of 8 tasks (38%)"
    assert StepProgress(0, 8, "rows", 60).describe() == "0 of 8 rows (0%)"
    assert [format_duration(seconds) for seconds in (0.2, 59.4, 61, 7_500)] == [
        "0 s",
        "59 s",
        "1 min 1 s",
        "2 h 5 min",
    ]


def tell(address: str, partition: int, sent: int) -> None:
    """Report as a task does that is due to."""
    progress = TaskProgress(None, address)
    progress.partition, progress.due_at = partition, 0.0
    progress(sent)


def test_reports_sum_the_partitions_and_ignore_who_does_not_know_the_token(
    spark: SparkSession,
) -> None:
    with closing(TaskReports(spark.sparkContext)) as reports:
        assert reports.count_rows() is None
        tell(reports.address, 0, 40)
        tell(reports.address, 1, 7)
        tell(reports.address, 0, 5)
        tell(reports.address.rpartition("/")[0] + "/" + 16 * "0", 2, 1_000)
        eventually(lambda: reports.count_rows() == 47, seconds=SECONDS_MAX)


def test_a_driver_that_cannot_be_reached_stops_no_task() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]

    for place in (f"127.0.0.1:{port}/", "127.0.0.1:0/", "no such host:1/", ""):
        tell(place + 16 * "0", 0, 3)


def test_when_no_datagram_arrives_the_rows_and_the_ends_of_tasks_are_known_by_spark(
    spark: SparkSession, sink: Path
) -> None:
    facts = [fact(f"acc-{n % 3}", f"k{n}", f"{n:02}", n) for n in range(12)]
    events = number_facts(facts_of(spark, facts), GROUP)
    noted: list[int] = []

    with JobConsole("feed", is_quiet=True).show_progress("sending", 12, noted.append) as display:
        assert display.reports is not None
        assert display.reports.receiver is None
        told = settings(sink)
        load = EventWriter(
            settings=told, source=RecordingDataSource, reports=display.reports, lanes=3
        )
        counts = load.send(events, 12)
        reached = display.measure()
        ended = display.reports.ended

    assert reached is not None
    assert (counts.sent, reached.done, reached.total, reached.unit) == (12, 12, 12, "rows")
    assert ended == {n: len(recorded(sink, partition=n)) for n in range(3)}
    assert sorted(noted) == [0, 1, 2]
    assert gather_ends(spark.sparkContext).value == {}, "nothing is kept of a write that is over"


@pytest.mark.proof
def test_when_a_try_of_a_task_fails_its_end_is_not_heard(spark: SparkSession, sink: Path) -> None:
    facts = [fact(f"acc-{n % 3}", f"k{n}", f"{n:02}", n) for n in range(12)]
    events = number_facts(facts_of(spark, facts), GROUP)
    noted: list[int] = []
    failing = settings(sink) | {"LOCKSTEP_QUEUE": "9", "LOCKSTEP_OUTPUT_QUEUE": CLOSING}

    with JobConsole("feed", is_quiet=True).show_progress("sending", 12, noted.append) as display:
        load = EventWriter(
            settings=failing, source=RecordingDataSource, reports=display.reports, lanes=3
        )
        with pytest.raises(PySparkException):
            load.send(events, 12)

    assert recorded(sink, attempt=0), "something was sent all the same"
    assert noted == []


@pytest.mark.parametrize("stderr", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_a_terminal_gets_a_bar_in_one_line_and_a_file_gets_lines(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    display = ProgressDisplay(JobConsole("feed"), "sending", spark, 8)

    display.show(StepProgress(2, 8, "rows", 1))
    display.show(StepProgress(4, 8, "rows", 2))

    if stderr.isatty():
        shown = stderr.getvalue().split(CLEAR_LINE)
        assert shown[1].startswith("feed: sending [######------------------] 2 of 8 rows (25%), 2")
        assert "\n" not in stderr.getvalue()
    else:
        assert stderr.getvalue().splitlines() == [
            "feed, sending: 2 of 8 rows (25%), 2.0/s, 3 s left",
            "feed, sending: 4 of 8 rows (50%), 2.0/s, 2 s left",
        ]


def test_a_quiet_console_writes_only_why_there_is_no_result(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    console = JobConsole("feed", is_quiet=True)

    console.log("reading")
    with console.show_progress("sending", 8) as display:
        spark.range(3).count()
        assert display.reports is not None
        assert display.reports.receiver is None
    assert stderr.getvalue() == ""

    assert console.report_failure("no such file") == 2
    assert stderr.getvalue() == "feed: no such file\n"

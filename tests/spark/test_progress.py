"""How far a step is: received from tasks, and shown as a bar on a terminal, else as lines."""

import io
import socket
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from local.testing.patience import eventually
from spark.feeding.numbering import number_facts
from spark.job.console import CLEAR_LINE, JobConsole, ProgressDisplay, StepProgress, format_duration
from spark.job.progress import ProgressListener, TaskProgress, send_progress
from spark.send.datasource import EventWriter
from tests.spark.bookings import GROUP, fact, facts_of, settings
from tests.spark.recording import RecordingDataSource

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


def test_a_listener_sums_the_partitions_and_ignores_who_does_not_know_its_token() -> None:
    listener = ProgressListener("127.0.0.1")
    try:
        assert listener.receive() is None
        send_progress(listener.address, 0, 40)
        send_progress(listener.address, 1, 7)
        send_progress(listener.address, 0, 5)
        send_progress(listener.address.rpartition("/")[0] + "/stranger", 2, 1_000)
        eventually(lambda: listener.receive() == 47, seconds=SECONDS_MAX)
    finally:
        listener.close()


def test_a_driver_that_cannot_be_reached_stops_no_task() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]

    TaskProgress(None, f"127.0.0.1:{port}/token").finish(3)
    TaskProgress(None, "127.0.0.1:0/token").finish(3)


def test_the_rows_of_a_write_are_received_while_it_is_shown(
    spark: SparkSession, sink: Path
) -> None:
    facts = [fact(f"acc-{n % 3}", f"k{n}", f"{n:02}", n) for n in range(12)]
    events = number_facts(facts_of(spark, facts), GROUP)

    with JobConsole("feed").show_progress("sending", 12) as display:
        told = settings(sink)
        load = EventWriter(settings=told, source=RecordingDataSource, progress=display.address)
        counts = load.send(events, 12)

        def measure_the_whole() -> StepProgress | None:
            reached = display.measure()
            return reached if reached and reached.done == 12 else None

        reached = eventually(measure_the_whole, seconds=SECONDS_MAX)
        assert reached is not None

    assert (counts.sent, reached.done, reached.total, reached.unit) == (12, 12, 12, "rows")


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
        assert display.address is None
    assert stderr.getvalue() == ""

    assert console.report_failure("no such file") == 2
    assert stderr.getvalue() == "feed: no such file\n"

"""What was found, planned, read back and sent is counted; a difference ends a feed by name."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark.feeding import FeedConfig, dataframe, feed
from spark.feeding.manifest import Manifest
from spark.job.failures import JobRefused
from spark.send.datasource import EventWriter
from tests.spark.bookings import LINES, ROWS, SCHEMA, Bank, declare
from tests.spark.recording import RecordingDataSource

SEEN = "session not in ('acc-0', 'a')"


class ForgetfulWriter(EventWriter):
    """Its tasks read a plan of which another machine has written a part to a disk of its own."""

    def send(self, rows: DataFrame, events: int) -> Any:
        return super().send(rows.where(SEEN), events)


def test_when_a_part_of_the_plan_cannot_be_read_back_nothing_is_bound_or_sent(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Manifest.write_plan
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write_plan", lambda m, run, plan: write(m, run, plan.where(SEEN)))
        with pytest.raises(
            JobRefused, match=r"9 events were to be planned and 0 .* has 6: nothing"
        ):
            bank.feed(LINES)
    assert (bank.history.steps, bank.sent()) == ((), [])

    assert bank.feed(LINES).counts.sent == len(bank.sent()) == 9


def test_when_tasks_read_less_than_is_bound_the_run_is_not_recorded_as_sent(bank: Bank) -> None:
    with pytest.raises(JobRefused, match=r"9 events were to be sent, .* read and sent 6\."):
        bank.feed(LINES, ForgetfulWriter, lanes=1)
    assert len(bank.sent()) == 6
    assert [step.run for step in bank.history.unsent] == [1]

    # Nothing is left out because a lane has ended that read a part.
    assert bank.feed(LINES).resumed == len(bank.sent()) == 9


@pytest.mark.proof
def test_when_the_plan_of_an_unfinished_run_is_gone_nothing_of_it_is_sent(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Manifest, "mark_sent", lambda *_: None)
    monkeypatch.setattr(Manifest, "mark_lane_sent", lambda *_: None)
    bank.feed(LINES, lanes=2)
    bank.sent()
    read = Manifest.read_plan
    monkeypatch.setattr(Manifest, "read_plan", lambda *args: read(*args).where(SEEN))

    with pytest.raises(JobRefused, match="run 1 is bound to 9 events, but 6 can be read"):
        bank.feed(LINES)
    assert bank.sent() == []


def test_when_tasks_send_less_than_was_found_a_feed_without_a_manifest_fails_too(
    bank: Bank, recorded_here: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer = partial(ForgetfulWriter, source=RecordingDataSource)
    monkeypatch.setattr(dataframe, "EventWriter", writer)
    table = bank.spark.createDataFrame(ROWS, SCHEMA)

    with pytest.raises(JobRefused, match=r"3 events were to be sent, .* read and sent 1\."):
        feed(table, declare("table"), FeedConfig("bank", rejects=str(tmp_path / "rejects")))

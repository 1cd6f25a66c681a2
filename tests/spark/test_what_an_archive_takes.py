"""What a run of the archive takes of a journal, and what it records; no Spark is started."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shared.storage.archive import ARCHIVE_ID, GENESIS_POSITION
from shared.storage.journal import REGIONS_SESSION
from spark.archive import LATE_SECONDS, PART_SECONDS, ArchiveRun, begin_run, end_run, first_part
from spark.job.failures import JobRefused
from spark.read.archive import WrittenReader
from tests.sized_outputs import WRITER, writing
from tests.spark.stopped_journal import BEGIN, Stopped, stopped_journal
from tests.world import message

pytestmark = pytest.mark.wire

type Row = tuple[str, int, float, dict[str, Any]]

PLACE = "abfss://archive@account.dfs.core.windows.net/lockstep"


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    with stopped_journal() as stopped:
        yield stopped


def taken(stopped: Stopped, run: ArchiveRun) -> list[Row]:
    """The rows of a run, over all partitions, in the order of session and position."""
    reader = WrittenReader(stopped.settings, run.since, run.record.until)
    rows = (row for partition in reader.partitions() for row in reader.read(partition))
    return sorted((s, at, when.timestamp(), json.loads(text)) for s, at, when, text in rows)


def ran(stopped: Stopped) -> list[tuple[str, int]]:
    """The sessions and positions that a whole run takes."""
    run = begin_run(stopped.journal, PLACE)
    rows = taken(stopped, run)
    end_run(stopped.journal, run)
    return entries_in(rows)


def entries_in(rows: Sequence[Row]) -> list[tuple[str, int]]:
    return [row[:2] for row in rows if row[1] != GENESIS_POSITION]


def test_a_run_takes_every_entry_as_stored_with_the_state_beside_it(stopped: Stopped) -> None:
    stopped.take(message(0, kind="account.bill"), message(1), message(0, session="acc-8"))
    stopped.take(writing([3], remember=20_000))
    stopped.seconds += LATE_SECONDS

    rows = taken(stopped, begin_run(stopped.journal, PLACE))

    entries = {(s, at): [entry] for s, at, _, entry in rows if at != GENESIS_POSITION}
    assert entries == stopped.expected()
    assert len(entries[WRITER, 0][0]["state"]["memory"]) == 20_000
    geneses = [(s, when) for s, at, when, _ in rows if at == GENESIS_POSITION]
    assert geneses == [("acc-7", BEGIN + 1), ("acc-8", BEGIN + 1), (WRITER, BEGIN + 2)]


def test_when_an_entry_is_written_in_the_last_second_of_a_run_it_comes_in_that_one_run(
    stopped: Stopped,
) -> None:
    stopped.take(message(0))
    stopped.seconds += LATE_SECONDS - 1
    assert ran(stopped) == []
    stopped.seconds += 1
    assert ran(stopped) == [("acc-7", 0)]
    stopped.seconds += 1
    assert ran(stopped) == []


def test_when_the_writes_move_to_a_clock_that_is_behind_nothing_is_passed_over(
    stopped: Stopped,
) -> None:
    stopped.take(message(0))
    stopped.seconds += LATE_SECONDS
    assert ran(stopped) == [("acc-7", 0)]
    stopped.seconds -= LATE_SECONDS - 1
    stopped.take(message(1))
    # A run of that hour records no less than is there already.
    assert ran(stopped) == []

    stopped.seconds += LATE_SECONDS

    assert ran(stopped) == [("acc-7", 1)]


def test_when_an_entry_changed_after_it_was_archived_it_comes_again(stopped: Stopped) -> None:
    with stopped.world.without("west"):
        stopped.take(message(0, kind="account.bill"))
    stopped.seconds += LATE_SECONDS
    assert ran(stopped) == [("acc-7", 0)]
    stopped.sweep()
    stopped.seconds += LATE_SECONDS

    assert ran(stopped) == [("acc-7", 0)]


def test_a_run_with_more_than_a_day_to_read_records_each_day_of_it(stopped: Stopped) -> None:
    stopped.take(message(0))
    stopped.seconds += PART_SECONDS - 1
    stopped.take(message(1))
    stopped.seconds += 30 * PART_SECONDS
    stopped.take(message(2))
    stopped.seconds += LATE_SECONDS
    run, parts = begin_run(stopped.journal, PLACE), []
    goal = run.record.until
    while run.since < goal:
        part = first_part(stopped.journal, run)
        parts.append(entries_in(taken(stopped, part)))
        run = replace(run, since=part.record.until, version=end_run(stopped.journal, part))
        record = stopped.journal.read_item(ARCHIVE_ID, REGIONS_SESSION)
        assert record["until"] == run.since

    assert parts == [[("acc-7", 0), ("acc-7", 1)], [("acc-7", 2)]]
    assert run.since == goal == stopped.seconds - LATE_SECONDS


def test_when_two_runs_meet_the_one_that_began_first_records_nothing(stopped: Stopped) -> None:
    stopped.take(message(0))
    first = begin_run(stopped.journal, PLACE)
    stopped.seconds += LATE_SECONDS
    second = begin_run(stopped.journal, PLACE)
    end_run(stopped.journal, second)

    with pytest.raises(JobRefused, match="another run of this job has begun"):
        end_run(stopped.journal, replace(first, record=replace(first.record, until=1)))

    record = stopped.journal.read_item(ARCHIVE_ID, REGIONS_SESSION)
    assert record["until"] == stopped.seconds - LATE_SECONDS


def test_when_compaction_runs_beside_a_run_it_sees_what_the_run_before_recorded(
    stopped: Stopped,
) -> None:
    ran(stopped)
    before = stopped.seconds - LATE_SECONDS
    stopped.take(message(0))
    stopped.seconds += LATE_SECONDS

    run = begin_run(stopped.journal, PLACE)

    assert stopped.journal.read_item(ARCHIVE_ID, REGIONS_SESSION)["until"] == before
    end_run(stopped.journal, run)
    assert stopped.journal.read_item(ARCHIVE_ID, REGIONS_SESSION)["until"] == before + 301


def test_another_folder_is_refused_unless_the_archive_was_moved_there(stopped: Stopped) -> None:
    ran(stopped)

    with pytest.raises(JobRefused, match=f"lies in {PLACE}: give that folder, or copy it"):
        begin_run(stopped.journal, "elsewhere")
    end_run(stopped.journal, begin_run(stopped.journal, "elsewhere", is_moved=True))
    with pytest.raises(JobRefused, match="lies in elsewhere"):
        begin_run(stopped.journal, PLACE)

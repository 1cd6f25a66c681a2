"""Feeds of one source over time: nothing twice, exactly what moved, whatever was cut short."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark import feed
from spark.feeding import ChangeLimit
from spark.feeding.manifest import Manifest
from spark.job.failures import JobRefused
from spark.send.datasource import EventWriter
from tests.spark.bookings import LINES, MARKED, Bank, DriverKilled, counted_passes


def test_a_second_run_sends_nothing_and_three_changed_rows_are_three_events(bank: Bank) -> None:
    context = bank.spark.sparkContext
    with counted_passes(context, "first") as passes:
        first = bank.feed(LINES)
    assert first.counts.sent == len(bank.sent()) == 9
    assert passes == [12, 9], "jobs and shuffles: see test_how_many_jobs_a_feed_takes.py"

    with counted_passes(context, "again") as passes:
        again = bank.feed(LINES)
    assert passes == [12, 8], "jobs and shuffles of a feed with nothing new"
    assert again.counts.sent == 0
    assert again.standings["unchanged"] == 9
    assert bank.sent() == []

    changed = [*LINES]
    for place in (1, 3, 7):
        changed[place] = changed[place].replace(f",{place * 10},", ",999,")
    third = bank.feed(changed)

    assert third.counts.sent == 3
    assert bank.sent() == [
        ("acc-0", 3, '{"amount":999}'),
        ("acc-1", 3, '{"amount":999}'),
        ("acc-1", 4, '{"amount":999}'),
    ]


class CachedTables(EventWriter):
    """Sends, and notes which tables are cached meanwhile."""

    seen: ClassVar[list[set[int]]] = []

    def send(self, rows: DataFrame, events: int) -> Any:
        self.seen.append(cached_tables(rows.sparkSession))
        return super().send(rows, events)


def cached_tables(spark: SparkSession) -> set[int]:
    """Spark's numbers of what is cached, which only Java tells."""
    return set(spark.sparkContext._jsc.getPersistentRDDs())


@pytest.mark.proof
def test_nothing_of_the_source_is_cached_any_more_while_its_events_are_sent(bank: Bank) -> None:
    before = cached_tables(bank.spark)
    facts = bank.source(LINES)
    assert cached_tables(bank.spark) - before

    bank.feed(facts, CachedTables)

    assert [seen - before for seen in CachedTables.seen] == [set()]
    assert len(bank.sent()) == 9


class KilledWriter(EventWriter):
    """A driver that is killed when everything, or nothing, was sent."""

    has_sent = False

    def send(self, rows: DataFrame, events: int) -> Any:
        if self.has_sent:
            super().send(rows, events)
        raise DriverKilled


class KilledWriterAfterSending(KilledWriter):
    """Killed between write and commit."""

    has_sent = True


@pytest.mark.parametrize(
    "killed", [KilledWriter, pytest.param(KilledWriterAfterSending, marks=pytest.mark.proof)]
)
def test_a_run_whose_driver_was_killed_is_sent_first_byte_for_byte(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, killed: type[KilledWriter]
) -> None:
    # Nobody has heard of the end of a lane: see test_a_run_is_sent_in_lanes.
    monkeypatch.setattr(Manifest, "mark_lane_sent", lambda *_: None)
    with pytest.raises(DriverKilled):
        bank.feed(LINES[:6], killed)
    before = bank.sent()
    # The source moves on before anybody looks after the broken run.
    changed = [LINES[0].replace(",0,2", ",777,2"), *LINES[1:]]

    told = bank.feed(changed)

    after = bank.sent()
    assert set(before) < set(after)
    assert told.resumed == 6
    assert ("acc-0", 0, '{"amount":0}') in after
    assert ("acc-0", 2, '{"amount":777}') in after
    assert len({(session, number) for session, number, _ in after}) == len(after) == 10
    assert bank.history.unsent == []


@pytest.mark.proof
def test_a_plan_that_was_never_bound_is_replaced(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise DriverKilled

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write_step", dies)
        with pytest.raises(DriverKilled):
            bank.feed(LINES)
    assert bank.sent() == []

    told = bank.feed(LINES[:4])

    assert (told.counts.sent, told.resumed) == (4, 0)
    assert len(bank.sent()) == 4
    assert bank.manifest.read_fed("bank", bank.history).count() == 4


@pytest.mark.proof
def test_from_the_watermark_on_only_newer_rows_are_read(bank: Bank) -> None:
    bank.feed(LINES)
    mark = bank.history.find_watermark("bank", "booked")
    newer = ["acc-0,90,1,2026-02-01 00:00:00", "acc-0,91,2,2025-12-01 00:00:00"]
    bank.sent()

    moved = bank.source([*LINES, *newer], mark)

    assert mark == "2026-01-05T00:00:00.000Z"
    assert sorted(row["key"] for row in moved.facts.collect()) == ['["4"]', '["90"]']
    assert bank.feed(moved).counts.sent == 1
    assert bank.sent() == [("acc-0", 3, '{"amount":1}')]
    assert bank.history.find_watermark("bank", "booked") == "2026-02-01T00:00:00.000Z"


@pytest.mark.proof
def test_a_folder_is_followed_and_files_that_come_later_are_fed(
    bank: Bank, recorded_here: None, tmp_path: Path
) -> None:
    folder, mapping, summary = (tmp_path / name for name in ("in", "mapping.json", "sum.json"))
    folder.mkdir()
    mapping.write_text(json.dumps(MARKED | {"format": "json"}))
    cells = [dict(zip(MARKED["columns"], line.split(","), strict=True)) for line in LINES]
    numbers = [{name: int(row[name]) for name in ("line", "amount")} for row in cells]
    objects = [json.dumps(row | more) for row, more in zip(cells, numbers, strict=True)]
    words = [f"--source={folder}", f"--mapping={mapping}", f"--summary={summary}", "--stream"]
    words += [f"--{name}={tmp_path / name}" for name in ("manifest", "checkpoint", "rejects")]

    told = []
    for number, part in enumerate((objects[:6], objects[4:], [])):
        if part:
            (folder / f"{number}.json").write_text("\n".join(part) + "\n")
        assert feed.main([*words, "--group=bank"]) == 0
        told.append(json.loads(summary.read_text()))

    assert [(each["rows"], each["sent"]) for each in told] == [(6, 6), (5, 3), (0, 0)]
    assert [number for session, number, _ in bank.sent() if session == "acc-2"] == [0, 1, 2]
    assert (bank.history.newest, bank.history.unsent) == (2, [])


@pytest.mark.proof
def test_two_groups_and_two_sources_of_one_manifest_have_their_own_watermarks(
    bank: Bank, recorded_here: None, tmp_path: Path
) -> None:
    mapping, summary = tmp_path / "mapping.json", tmp_path / "sum.json"
    mapping.write_text(json.dumps(MARKED))
    # The second source has other sessions, and all its rows but the last are older.
    second = [line.replace("acc", "other") for line in LINES]
    for name, lines in (("one.csv", [*LINES[5:], LINES[4]]), ("two.csv", second)):
        (tmp_path / name).write_text("\n".join(["account,line,amount,seen", *lines]) + "\n")

    told = []
    for name, group in (("one", "a"), ("two", "a"), ("one", "b"), ("two", "a"), ("one", "b")):
        words = [f"--source={tmp_path / name}.csv", f"--group={group}", f"--mapping={mapping}"]
        words += [f"--{place}={tmp_path / place}" for place in ("manifest", "rejects")]
        assert feed.main([*words, f"--summary={summary}"]) == 0
        told.append(json.loads(summary.read_text()))
        bank.sent()

    assert [each["sent"] for each in told] == [5, 9, 5, 0, 0]
    assert [each["rows"] for each in told] == [5, 9, 5, 1, 1]


OTHER_OPTIONS = {"options": "sep ';'"}


@pytest.mark.proof
def test_a_mapping_that_means_something_else_is_refused_with_the_difference(bank: Bank) -> None:
    first = bank.source(LINES)
    assert first.meaning is not None
    meant = dict(first.meaning)
    # An older release recorded no options, so whatever they are now is not held against it.
    bank.feed(replace(first, meaning={n: text for n, text in meant.items() if n != "options"}))
    bank.sent()
    other = replace(bank.source(["acc-0,9,9,2026-01-05 00:00:00"]), meaning=meant | OTHER_OPTIONS)
    assert bank.feed(other).counts.sent == len(bank.sent()) == 1
    booked = bank.source(LINES)
    told = {
        "body": "body was amount int, is amount bigint",
        "time zone": "time zone was UTC, is CET",
        "key": "key was line int, is id int",
        "options": "options was sep ';', is none",
        # What a manifest of before has no number for.
        "times": "times was none, is format 2",
    }

    for name, text in told.items():
        changed = meant | OTHER_OPTIONS | {name: text.split(" is ")[-1]}
        with pytest.raises(JobRefused, match=text):
            bank.feed(replace(booked, meaning=changed))
    assert bank.sent() == []

    assert bank.feed(replace(booked, meaning=meant | OTHER_OPTIONS)).counts.sent == 0
    # What is accepted once is recorded, even if nothing has changed.
    assert bank.feed(booked, accept_mapping=True).counts.sent == 0
    assert bank.feed(booked).counts.sent == 0
    wider = meant | {"body": "amount bigint"}
    line = replace(bank.source([LINES[0].replace(",0,2", ",5,2")]), meaning=wider)
    assert bank.feed(line, accept_mapping=True).counts.sent == 1
    with pytest.raises(JobRefused, match="body was amount bigint, is amount int"):
        bank.feed(booked)


@pytest.mark.proof
def test_more_changed_rows_than_the_limit_send_nothing(bank: Bank) -> None:
    bank.feed(LINES)
    bank.sent()
    changed = [LINES[0].replace(",0,2", ",7,2"), LINES[1].replace(",10,2", ",7,2"), *LINES[2:]]
    limits = {"1": False, "2": True, "22%": False, "23%": True}

    for text, is_sent in limits.items():
        limit = ChangeLimit.parse(text)
        if is_sent:
            bank.feed(changed, changed_max=limit)
            assert len(bank.sent()) == 2
            changed = [line.replace(",7,2", ",8,2") for line in changed]
        else:
            with pytest.raises(JobRefused, match=r"2 of 9 rows .* are changed"):
                bank.feed(changed, changed_max=limit)
            assert bank.sent() == []


@pytest.mark.parametrize("text", ["", "%", "-1", "5.5", "101%", "five", "1e3%"])
def test_a_limit_is_a_whole_number_or_a_share(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number, or a share"):
        ChangeLimit.parse(text)

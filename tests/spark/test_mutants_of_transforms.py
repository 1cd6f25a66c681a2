"""The whole-table tests once more: with mutants of transforms, and with plans as users run them."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.check import reconciliation
from spark.feeding import gate, judging, numbering
from spark.read import facts, sources, values
from spark.samples.flights import events, validation
from tests.spark import bookings
from tests.spark import test_flights as flights
from tests.spark import test_nothing_unsendable_is_bound as gated
from tests.spark import test_one_text_for_every_value as texts
from tests.spark import test_reconciliation as books
from tests.spark import test_rows_become_facts as rows
from tests.spark import test_rows_that_are_gone as rows_gone
from tests.spark import test_what_is_new_since_the_last_feed as news
from tests.spark.conftest import SMALL

type Killer = Callable[[SparkSession], None]

whole_events = flights.test_a_flight_departs_and_arrives_and_a_cancelled_one_says_only_that
clocks = flights.test_clocks_become_instants
rejects = flights.test_each_reject_keeps_its_cells_and_says_why
good_rows = rows.test_a_rejected_row_does_not_take_the_place_of_a_good_one
newest = rows.test_of_the_rows_with_one_key_the_newest_is_the_fact
disagreements = books.test_each_difference_is_named_once_and_without_any_nothing_is
gone = rows_gone.test_what_is_gone_is_judged_so_and_is_the_last_of_its_session
what_moved = news.test_only_what_moved_is_sent_and_numbers_go_on
refused = news.test_what_the_policies_refuse_is_a_reject_with_its_reason
unsendable = gated.test_what_sending_refuses_gets_no_number_and_leaves_no_gap


def hours(spark: SparkSession) -> None:
    texts.test_a_time_is_the_same_text_in_every_zone_and_every_hour(spark, BERLIN, "timestamp")


def hours_without_a_zone(spark: SparkSession) -> None:
    with TemporaryDirectory() as folder:
        texts.test_a_time_without_a_zone_is_read_if_the_zone_has_it_once(
            spark, Path(folder), BERLIN, "csv"
        )


def cells(spark: SparkSession) -> None:
    texts.test_a_cell_is_read_whole_or_refused(spark, Path(), "table")


def formats(spark: SparkSession) -> None:
    with TemporaryDirectory() as folder:
        texts.test_a_column_is_read_in_the_format_that_it_has(spark, Path(folder), BERLIN, "csv")


def decimals(spark: SparkSession) -> None:
    texts.test_a_decimal_is_an_order_a_version_and_a_watermark(spark, "decimal(10,2)")


BERLIN = "Europe/Berlin"
TWICE = "(~is_after | (before == after))"
OVERNIGHT = "F.when(overnight, validation.DAY_MINUTES)"
FIRST = "F.row_number().over(in_order) - 1"
TOO_OLD, TOO_EARLY = 'F.col("version") < F.col("fed_version")', 'F.col("place") < F.col("reached")'
BACK = 'F.col("sequence") < F.col("after")'
# A function, what is changed in it, and the test that must notice.
MUTANTS: dict[str, tuple[ModuleType, str, str, str, Killer]] = {
    "an arrival past midnight stays on its day": (
        *(events, "find_arrival", OVERNIGHT, "F.when(overnight, 0)"),
        clocks,
    ),
    "the first number is 1": (numbering, "number_facts", FIRST, FIRST[:-4], whole_events),
    "a session goes on at the number it ended with": (
        *(judging, "classify_facts", 'F.max("sequence") + 1', 'F.max("sequence")'),
        what_moved,
    ),
    "what a key said first is compared, not last": (
        *(judging, "classify_facts", "F.max_by(F.when(stands", "F.min_by(F.when(stands"),
        what_moved,
    ),
    "a row that was sent as deleted is known as what it was": (
        *(judging, "classify_facts", "stands = ~says_deleted", "stands = F.lit(True)"),
        gone,
    ),
    "what is gone comes before what is new": (
        *(judging, "classify_facts", 'F.greatest("reached", "last")', 'F.col("reached")'),
        gone,
    ),
    "a row is gone though there is one with its key": (
        *(judging, "classify_facts", '"left_anti"', '"left"'),
        gone,
    ),
    "a fact at the place that was reached is late": (
        *(judging, "choose_standing", TOO_EARLY, TOO_EARLY.replace("<", "<=")),
        refused,
    ),
    "a fact that is as old as what was fed is too old": (
        *(judging, "choose_standing", TOO_OLD, TOO_OLD.replace("<", "<=")),
        what_moved,
    ),
    "what sending refuses gets a number": (
        *(judging, "plan_events", ".where(refusal.isNull())", ""),
        unsendable,
    ),
    "the gate lets everything through": (
        *(gate, "find_refusal", "return str(error)", "return None"),
        unsendable,
    ),
    "a rejected row takes the place of a good one": (
        *(facts, "map_rows", 'F.isnotnull("reason"), ', ""),
        good_rows,
    ),
    "the oldest row of a key counts": (
        *(facts, "order_newest_first", "desc_nulls_last", "asc_nulls_last"),
        newest,
    ),
    "a departure may contradict its delay": (
        *(validation, "contradicts_schedule", "!=", "<"),
        rejects,
    ),
    "an instant is written in the session's zone": (
        *(values, "write_in_full", 'if kind == "timestamp"', 'if kind == ""'),
        hours,
    ),
    "microseconds are cut": (values, "write_time", "> 3, 6)", "> 3, 3)", hours),
    "of an hour that comes twice the first is meant": (
        *(values, "find_instant", TWICE, "F.lit(True)"),
        hours_without_a_zone,
    ),
    "a date takes what its format says of the time": (
        *(values, "read_pattern", 'F.when(wall.cast("date") == wall, wall', "(wall"),
        formats,
    ),
    "negative decimals sort as positive ones": (
        *(values, "encode_order", "F.when(column < 0", "F.when(column.isNull()"),
        decimals,
    ),
    "a decimal is rounded": (
        values,
        "read_whole_cell",
        ".otherwise(~is_cut)",
        ".otherwise(True)",
        cells,
    ),
    "blank text is no text": (sources, "select_columns", '"string" != kind', '"string"', cells),
    "an effect that moved back is in order": (
        *(reconciliation, "is_out_of_order", BACK, BACK.replace("<", ">")),
        disagreements,
    ),
    "what is parked waits behind a fault, whether there is one or not": (
        *(reconciliation, "match_outcomes", 'F.col("halt").isNotNull()', "F.lit(True)"),
        disagreements,
    ),
    "an effect is at home in any session": (
        *(reconciliation, "is_in_own_session", 'F.col("session")', 'outcome["session"]'),
        disagreements,
    ),
}


# The first mutant of each package: the others say as much of the tests, three seconds each.
SAMPLE = {module.__package__: name for name, (module, *_) in reversed(MUTANTS.items())}.values()


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_fits_the_code(name: str) -> None:
    module, function, before, *_ = MUTANTS[name]

    assert inspect.getsource(getattr(module, function)).count(before) == 1


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in SAMPLE else pytest.mark.proof) for n in MUTANTS],
)
def test_the_mutant_is_killed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, function, before, after, killer = MUTANTS[name]
    source = inspect.getsource(getattr(module, function))
    names: dict[str, Any] = dict(vars(module))
    exec(source.replace(before, after), names)
    for each in {module, judging, events, facts, reconciliation, bookings, rows, rows_gone, gated}:
        if hasattr(each, function):
            monkeypatch.setattr(each, function, names[function])

    spark.conf.set("spark.sql.session.timeZone", BERLIN if module is values else "UTC")
    try:
        with pytest.raises(AssertionError):
            killer(spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture
def as_users_run(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with Spark's own defaults where the other tests have none."""
    for name in SMALL:
        spark.conf.unset(name)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    spark.conf.set("spark.sql.shuffle.partitions", SMALL["spark.sql.shuffle.partitions"])
    yield spark
    for name, value in SMALL.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize(
    "whole_table",
    [
        pytest.param(whole_events, marks=pytest.mark.proof),
        pytest.param(disagreements, marks=pytest.mark.proof),
        what_moved,
    ],
)
def test_the_tables_are_the_same(as_users_run: SparkSession, whole_table: Killer) -> None:
    whole_table(as_users_run)

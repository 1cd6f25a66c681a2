"""Transforms are changed a little, on purpose; the whole-table test of each must fail."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.check import reconciliation
from spark.feeding import judging, numbering
from spark.read import facts as source_facts
from spark.samples.flights import events, validation
from tests.spark import facts
from tests.spark import test_of_one_key_the_newest_counts as newest_counts
from tests.spark.test_flights_become_events import (
    test_a_flight_departs_and_arrives_and_a_cancelled_one_says_only_that as whole_events,
)
from tests.spark.test_flights_become_events import test_clocks_become_instants as clocks
from tests.spark.test_of_one_key_the_newest_counts import (
    test_a_rejected_row_does_not_take_the_place_of_a_good_one as good_rows,
)
from tests.spark.test_of_one_key_the_newest_counts import (
    test_of_the_rows_with_one_key_the_newest_is_the_fact as newest,
)
from tests.spark.test_reconciliation import (
    test_each_difference_is_named_once_and_without_any_nothing_is as disagreements,
)
from tests.spark.test_rows_that_cannot_become_events import (
    test_each_reject_keeps_its_cells_and_says_why as rejects,
)
from tests.spark.test_what_is_new_since_the_last_feed import (
    test_only_what_moved_is_sent_and_numbers_go_on as what_moved,
)
from tests.spark.test_what_is_new_since_the_last_feed import (
    test_what_the_policies_refuse_is_a_reject_with_its_reason as refused,
)

pytestmark = pytest.mark.spark


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one function, and the test that must notice."""

    module: ModuleType
    function: str
    before: str
    after: str
    killer: Callable[[SparkSession], None]


MUTANTS = {
    "an arrival past midnight stays on its day": Mutant(
        events,
        "find_arrival",
        "F.when(overnight, validation.DAY_MINUTES)",
        "F.when(overnight, 0)",
        clocks,
    ),
    "the first number is 1": Mutant(
        numbering,
        "number_facts",
        "F.row_number().over(in_order) - 1",
        "F.row_number().over(in_order)",
        whole_events,
    ),
    "a session goes on at the number it ended with": Mutant(
        judging, "classify_facts", 'F.max("sequence") + 1', 'F.max("sequence")', what_moved
    ),
    "what a key said first is compared, not last": Mutant(
        judging, "classify_facts", 'F.max_by("digest"', 'F.min_by("digest"', what_moved
    ),
    "a fact at the place that was reached is late": Mutant(
        judging,
        "choose_standing",
        'F.col("place") < F.col("reached")',
        'F.col("place") <= F.col("reached")',
        refused,
    ),
    "a fact that is as old as what was fed is too old": Mutant(
        judging,
        "choose_standing",
        'F.col("version") < F.col("fed_version")',
        'F.col("version") <= F.col("fed_version")',
        what_moved,
    ),
    "a rejected row takes the place of a good one": Mutant(
        source_facts, "map_rows", 'F.isnotnull("reason"), ', "", good_rows
    ),
    "the oldest row of a key counts": Mutant(
        source_facts, "order_newest_first", "desc_nulls_last", "asc_nulls_last", newest
    ),
    "a departure may contradict its delay": Mutant(
        validation, "contradicts_schedule", "!=", "<", rejects
    ),
    "an effect that moved back is in order": Mutant(
        reconciliation,
        "is_out_of_order",
        'F.col("sequence") < F.col("after")',
        'F.col("sequence") > F.col("after")',
        disagreements,
    ),
    "an effect is at home in any session": Mutant(
        reconciliation, "is_in_own_session", 'F.col("session")', 'outcome["session"]', disagreements
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_killed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    mutant = MUTANTS[name]
    broken = changed(mutant)
    for module in (mutant.module, *importers(mutant)):
        monkeypatch.setattr(module, mutant.function, broken)

    with pytest.raises(AssertionError):
        mutant.killer(spark)


def changed(mutant: Mutant) -> Any:
    """The function with the change in it."""
    source = inspect.getsource(getattr(mutant.module, mutant.function))
    assert source.count(mutant.before) == 1, "the mutant does not fit the code any more"
    names = dict(vars(mutant.module))
    exec(source.replace(mutant.before, mutant.after), names)
    return names[mutant.function]


def importers(mutant: Mutant) -> list[ModuleType]:
    """The other modules that know the function by its name."""
    return [
        module
        for module in (judging, events, facts, source_facts, reconciliation, newest_counts)
        if module is not mutant.module and hasattr(module, mutant.function)
    ]

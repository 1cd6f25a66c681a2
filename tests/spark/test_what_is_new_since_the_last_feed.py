"""Facts held against a manifest: what is new, late, changed or neither, and what is sent of it."""

import json

from pyspark.sql import SparkSession

from spark.feeding import ChangePolicy
from spark.feeding.judging import ChangePolicies, plan_events, select_rejects
from spark.schemas import PLAN, REJECTED_ROWS
from tests.spark.bookings import GROUP, Fact, assert_same_table, bound, fact, stood

FED = [
    bound(fact("a", "k1", "01", 5), 0),
    bound(fact("a", "k2", "03", 7), 1),
    bound(fact("a", "k2", "03", 8), 2),
    bound(fact("b", "k1", "09", 1), 0),
    bound(fact("d", "k1", "01", 5, "v2"), 0),
    bound(fact("d", "k2", "02", 5, "v2"), 1),
]
NOW: dict[str, Fact] = {
    "unchanged": fact("a", "k1", "01", 5),
    "changed, back to what it once said": fact("a", "k2", "03", 7),
    "late": fact("a", "k3", "02", 9),
    "new": fact("a", "k4", "04", 3),
    "new in another session under a known key": fact("c", "k1", "01", 5),
    "repeated key": fact("c", "k1", "01", 6),
    "unchanged in b": fact("b", "k1", "09", 1),
    "new at the place that was reached": fact("b", "k2", "09", 2),
    "older than what was fed": fact("d", "k1", "01", 4, "v1"),
    "changed and as old": fact("d", "k2", "02", 6, "v2"),
    "the older of two": fact("e", "k1", "01", 1, "v1"),
    "the newer of two": fact("e", "k1", "01", 9, "v2"),
}


def rejected(name: str, why: str) -> tuple[str, str]:
    session, key, _, kind, body, _, _ = NOW[name]
    row = {"session": session, "key": key, "type": kind, "body": body}
    return json.dumps(row, separators=(",", ":")), why


def test_only_what_moved_is_sent_and_numbers_go_on(spark: SparkSession) -> None:
    found = plan_events(stood(spark, list(NOW.values()), FED), GROUP, ChangePolicies())

    expected = [
        bound(NOW["late"], 3),
        bound(NOW["changed, back to what it once said"], 4),
        bound(NOW["new"], 5),
        bound(NOW["new in another session under a known key"], 0),
        bound(NOW["new at the place that was reached"], 1),
        bound(NOW["changed and as old"], 2),
        bound(NOW["the newer of two"], 0),
    ]
    assert_same_table(found, spark.createDataFrame(expected, PLAN))


def test_what_the_policies_refuse_is_a_reject_with_its_reason(spark: SparkSession) -> None:
    policies = ChangePolicies(late=ChangePolicy.REJECT, changed=ChangePolicy.REJECT)
    facts = stood(spark, list(NOW.values()), FED).persist()

    expected = [
        rejected("late", "late"),
        rejected("changed, back to what it once said", "changed"),
        rejected("repeated key", "repeated key"),
        rejected("older than what was fed", "older than what was fed"),
        rejected("changed and as old", "changed"),
        rejected("the older of two", "repeated key"),
    ]
    assert_same_table(
        select_rejects(facts, policies), spark.createDataFrame(expected, REJECTED_ROWS)
    )
    sent = plan_events(facts, GROUP, policies).select("session", "sequence").collect()
    assert sorted((row["session"], row["sequence"]) for row in sent) == [
        ("a", 3),
        ("b", 1),
        ("c", 0),
        ("e", 0),
    ]


def test_without_a_past_everything_is_numbered_from_zero(spark: SparkSession) -> None:
    facts = [fact("a", "k2", "02", 1), fact("a", "k10", "10", 2), fact("a", "k1", "01", 3)]

    found = plan_events(stood(spark, facts, []), GROUP, ChangePolicies())

    expected = [bound(facts[2], 0), bound(facts[0], 1), bound(facts[1], 2)]
    assert_same_table(found, spark.createDataFrame(expected, PLAN))

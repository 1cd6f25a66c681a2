"""The plans by which clients put a query together from several physical partitions."""

from typing import Any

import pytest

from local.cosmos.query.merging import FILTER_PLACE, build_merging_plan, needs_merging
from local.cosmos.responses import RequestRefused
from local.cosmos.sql.parser import parse_query


def plan_of(text: str) -> dict[str, Any]:
    plan: dict[str, Any] = build_merging_plan(parse_query(text, {"@n": 3}))["queryInfo"]
    return plan


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        (
            "SELECT * FROM c WHERE c.a = @n OR c.b ORDER BY c.d DESC, c.e",
            (
                'SELECT c._rid, [{"item": c.d}, {"item": c.e}] AS orderByItems, c AS payload FROM c'
                f" WHERE (c.a = @n OR c.b) AND ({FILTER_PLACE}) ORDER BY c.d DESC, c.e ASC"
            ),
        ),
        (
            "SELECT TOP @n x.a, x.b.d AS e, 1 FROM root AS x ORDER BY x['f g']",
            (
                "SELECT TOP 3 x._rid, [{\"item\": x['f g']}] AS orderByItems,"
                ' {"a": x.a, "e": x.b.d, "$3": 1} AS payload FROM root AS x'
                f" WHERE ({FILTER_PLACE}) ORDER BY x['f g'] ASC"
            ),
        ),
        (
            "SELECT VALUE c.a FROM c ORDER BY c.b OFFSET 5 LIMIT 2",
            (
                'SELECT c._rid, [{"item": c.b}] AS orderByItems, c.a AS payload FROM c'
                f" WHERE ({FILTER_PLACE}) AND (IS_DEFINED(c.a)) ORDER BY c.b ASC OFFSET 0 LIMIT 7"
            ),
        ),
        (
            "SELECT DISTINCT TOP 2 VALUE c.a FROM c ORDER BY c.a",
            (
                'SELECT c._rid, [{"item": c.a}] AS orderByItems, c.a AS payload FROM c'
                f" WHERE ({FILTER_PLACE}) AND (IS_DEFINED(c.a)) ORDER BY c.a ASC"
            ),
        ),
        ("SELECT DISTINCT c.a FROM c", 'SELECT DISTINCT VALUE {"a": c.a} FROM c'),
        ("SELECT * FROM c OFFSET 5 LIMIT 2", "SELECT VALUE c FROM c OFFSET 0 LIMIT 7"),
        ("SELECT VALUE COUNT(1) FROM c", 'SELECT VALUE [{"item": COUNT(1)}] FROM c'),
        (
            "SELECT VALUE AVG( c.a + 1 ) FROM c WHERE c.b",
            (
                'SELECT VALUE [{"item": {"sum": SUM(c.a + 1), "count": COUNT(c.a + 1)}}] FROM c'
                " WHERE (c.b)"
            ),
        ),
        (
            "SELECT VALUE MAX(c.a) FROM c",
            (
                'SELECT VALUE [{"item": MAX(c.a), "item2": {"max": MAX(c.a), "count": COUNT(c.a)}}]'
                " FROM c"
            ),
        ),
        ("SELECT * FROM c WHERE c.a = 1", ""),
    ],
)
def test_a_query_is_rewritten_for_one_partition_and_can_be_read_again(
    text: str, rewritten: str
) -> None:
    assert plan_of(text)["rewrittenQuery"] == rewritten
    if rewritten:
        parse_query(rewritten.replace(FILTER_PLACE, "true"), {"@n": 3})


def test_a_plan_says_how_results_are_merged() -> None:
    ordered = plan_of("SELECT TOP 4 * FROM c ORDER BY c.a DESC, c.b")
    paged = plan_of("SELECT DISTINCT VALUE c.a FROM c ORDER BY c.a OFFSET 0 LIMIT 9")
    counted = plan_of("SELECT VALUE SUM(c.a) FROM c")

    assert ordered["orderBy"] == ["Descending", "Ascending"]
    assert ordered["orderByExpressions"] == ["c.a", "c.b"]
    assert (ordered["top"], ordered["distinctType"]) == (4, "None")
    assert (paged["offset"], paged["limit"], paged["distinctType"]) == (0, 9, "Ordered")
    assert (counted["aggregates"], counted["hasSelectValue"]) == (["Sum"], True)
    assert plan_of("SELECT DISTINCT c.a FROM c ORDER BY c.a")["distinctType"] == "Unordered"


def test_only_conditions_and_projections_need_no_merging() -> None:
    assert not needs_merging(parse_query("SELECT c.a FROM c WHERE c.b = 1", {}))
    for text in ("SELECT TOP 1 * FROM c", "SELECT DISTINCT c.a FROM c", "SELECT COUNT(1) FROM c"):
        assert needs_merging(parse_query(text, {}))


def test_more_than_one_aggregate_is_refused() -> None:
    for text in ("SELECT COUNT(1) FROM c", "SELECT VALUE COUNT(1) + 1 FROM c"):
        with pytest.raises(RequestRefused, match="without a partition key"):
            plan_of(text)

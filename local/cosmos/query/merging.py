"""Queries that a client must put together from the answers of several physical partitions.

The service cannot: it answers 400 with substatus 1004, upon which clients ask for a plan. The plan
holds a query to be sent to each partition, and says how to merge what comes back: sorted by
`orderByItems`, aggregates added up from their parts, duplicates and a surplus dropped. Its form is
the one that the clients of the service read.
"""

from typing import Any

from local.cosmos.answers import Refusal, compact, unsupported
from local.cosmos.items.partitions import WHOLE_RING
from local.cosmos.query.syntax import Aggregate, Query

NOT_SERVABLE = 1004
FILTER_PLACE = "{documentdb-formattableorderbyquery-filter}"  # clients put a condition here
AGGREGATE_NAMES = {"COUNT": "Count", "SUM": "Sum", "AVG": "Average", "MIN": "Min", "MAX": "Max"}
PARTS = {
    "COUNT": '{{"item": COUNT({0})}}',
    "SUM": '{{"item": SUM({0})}}',
    "AVG": '{{"item": {{"sum": SUM({0}), "count": COUNT({0})}}}}',
    "MIN": '{{"item": MIN({0}), "item2": {{"min": MIN({0}), "count": COUNT({0})}}}}',
    "MAX": '{{"item": MAX({0}), "item2": {{"max": MAX({0}), "count": COUNT({0})}}}}',
}


def needs_merging(query: Query) -> bool:
    """Whether the answers of several partitions, one after the other, are not the answer."""
    return bool(query.order or query.aggregates or query.is_distinct or query.count_max is not None)


def not_servable(query: Query) -> Refusal:
    """The refusal that makes clients ask for the plan."""
    return Refusal(
        400,
        "a client must merge this query: several physical partitions answer it",
        substatus=NOT_SERVABLE,
        additional=compact(merging_plan(query)),
    )


def merging_plan(query: Query) -> dict[str, Any]:
    """How a client gets the answer of a query from all partitions."""
    everything = {
        "min": WHOLE_RING.start,
        "max": WHOLE_RING.end,
        "isMinInclusive": True,
        "isMaxInclusive": False,
    }
    return {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": distinct_type(query),
            "top": query.top,
            "offset": None if query.limit is None else query.offset,
            "limit": query.limit,
            "orderBy": ["Descending" if k.is_descending else "Ascending" for k in query.order],
            "orderByExpressions": list(query.texts.order),
            "groupByExpressions": [],
            "groupByAliases": [],
            "aggregates": [AGGREGATE_NAMES[one.name] for one in query.aggregates],
            "groupByAliasToAggregateType": {},
            "rewrittenQuery": rewritten(query) if needs_merging(query) else "",
            "hasSelectValue": query.is_value,
            "dCountInfo": None,
            "hasNonStreamingOrderBy": False,
        },
        "queryRanges": [everything],
    }


def distinct_type(query: Query) -> str:
    """Whether equal results come one after the other."""
    if not query.is_distinct:
        return "None"
    return "Ordered" if query.texts.order == (query.texts.value,) else "Unordered"


def rewritten(query: Query) -> str:
    """The query for one partition."""
    if query.aggregates:
        return for_aggregate(query)
    return for_order(query) if query.order else for_some(query)


def for_aggregate(query: Query) -> str:
    """The parts of SELECT VALUE of an aggregate."""
    texts = query.texts
    if not (query.is_value and isinstance(query.selection, Aggregate)):
        raise unsupported("more than SELECT VALUE of an aggregate over several physical partitions")
    parts = PARTS[query.selection.name].format(query.selection.text)
    return made(f"VALUE [{parts}]", texts.source, [texts.condition])


def for_order(query: Query) -> str:
    """Results with what they are sorted by; duplicates are the client's, so all are sent then."""
    texts = query.texts
    keys = ", ".join(f'{{"item": {text}}}' for text in texts.order)
    directions = (" DESC" if key.is_descending else " ASC" for key in query.order)
    order = ", ".join(map(str.__add__, texts.order, directions))
    shown = f"{texts.alias}._rid, [{keys}] AS orderByItems, {texts.value} AS payload"
    conditions = [
        texts.condition,
        FILTER_PLACE,
        f"IS_DEFINED({texts.value})" if query.is_value else "",
    ]
    top, limit = ("", "") if query.is_distinct else bounds(query)
    return made(f"{top}{shown}", texts.source, conditions, f" ORDER BY {order}{limit}")


def for_some(query: Query) -> str:
    """As many results as could be needed of each partition, without duplicates in one of them."""
    texts = query.texts
    top, limit = bounds(query)
    distinct = "DISTINCT " if query.is_distinct else ""
    shown = f"{distinct}{top}VALUE {texts.value}"
    return made(shown, texts.source, [texts.condition], limit)


def bounds(query: Query) -> tuple[str, str]:
    """TOP, and OFFSET LIMIT, with what may be left out by the client still in."""
    top = "" if query.top is None else f"TOP {query.top} "
    limit = "" if query.limit is None else f" OFFSET 0 LIMIT {query.offset + query.limit}"
    return top, limit


def made(shown: str, source: str, conditions: list[str], rest: str = "") -> str:
    """A query, with all conditions that are not empty."""
    joined = " AND ".join(f"({one})" for one in conditions if one)
    where = f" WHERE {joined}" if joined else ""
    return f"SELECT {shown} FROM {source}{where}{rest}"  # noqa: S608 - made of the client's own

"""Queries that a client must put together from the results of several physical partitions.

The service cannot: it responds with 400 and substatus 1004, upon which clients ask for a plan. The
plan holds a query to be sent to each partition, and says how to merge what comes back: sorted by
`orderByItems`, aggregates added up from their parts, duplicates and a surplus dropped. Its form is
the one that the clients of the service read.
"""

from typing import Any

from local.cosmos.items.partitions import MAX_RANGE
from local.cosmos.responses import NotOffered
from local.cosmos.sql.syntax import Aggregate, Query

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
    """Return whether the results of partitions, one after the other, are not the query's result."""
    return bool(query.order or query.aggregates or query.is_distinct or query.count_max is not None)


def build_merging_plan(query: Query, *, has_key: bool = False) -> dict[str, Any]:
    """The plan of a query; one that `has_key` has one partition, whose results may be the query's.

    Clients of .NET and Java ask for a plan of any query. Where the key is known, aggregates under
    names need no merging: a plan without aggregates has the client send the query as it is.
    """
    is_whole = has_key and bool(query.aggregates) and not is_one_value(query)
    aggregates = () if is_whole else query.aggregates
    distinct_type = "None"
    if query.is_distinct:  # in order, equal results come one after the other
        is_in_order = query.texts.order == (query.texts.value,)
        distinct_type = "Ordered" if is_in_order else "Unordered"
    whole_ring = {"min": "", "max": MAX_RANGE, "isMinInclusive": True, "isMaxInclusive": False}
    return {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": distinct_type,
            "top": query.top,
            "offset": None if query.limit is None else query.offset,
            "limit": query.limit,
            "orderBy": ["Descending" if k.is_descending else "Ascending" for k in query.order],
            "orderByExpressions": list(query.texts.order),
            "groupByExpressions": [],
            "groupByAliases": [],
            "aggregates": [AGGREGATE_NAMES[one.name] for one in aggregates],
            "groupByAliasToAggregateType": {},
            "rewrittenQuery": rewrite(query) if needs_merging(query) and not is_whole else "",
            "hasSelectValue": query.is_value,
            "dCountInfo": None,
            "hasNonStreamingOrderBy": False,
        },
        "queryRanges": [whole_ring],
    }


def is_one_value(query: Query) -> bool:
    """Return whether a query is SELECT VALUE of an aggregate."""
    return query.is_value and isinstance(query.selection, Aggregate)


def rewrite(query: Query) -> str:
    """The query for one partition, of which a client drops what is too much."""
    texts = query.texts
    top = "" if query.top is None else f"TOP {query.top} "
    limit = "" if query.limit is None else f" OFFSET 0 LIMIT {query.offset + query.limit}"
    conditions = [texts.condition]
    if query.aggregates:  # their parts
        if not is_one_value(query):
            what = "more than SELECT VALUE of an aggregate in a query without a partition key"
            raise NotOffered(what)
        (one,) = query.aggregates
        shown = f"VALUE [{PARTS[one.name].format(one.text)}]"
        rest = ""
    elif query.order:  # results with what they are sorted by
        keys = ", ".join(f'{{"item": {text}}}' for text in texts.order)
        shown = f"{texts.alias}._rid, [{keys}] AS orderByItems, {texts.value} AS payload"
        conditions += [FILTER_PLACE, f"IS_DEFINED({texts.value})" if query.is_value else ""]
        rest = " ORDER BY " + ", ".join(
            f"{text} {'DESC' if key.is_descending else 'ASC'}"
            for text, key in zip(texts.order, query.order, strict=True)
        )
        if not query.is_distinct:  # the client drops duplicates, so it needs all results
            shown, rest = f"{top}{shown}", f"{rest}{limit}"
    else:
        shown = f"{'DISTINCT ' if query.is_distinct else ''}{top}VALUE {texts.value}"
        rest = limit
    joined = " AND ".join(f"({one})" for one in conditions if one)
    where = f" WHERE {joined}" if joined else ""
    return f"SELECT {shown} FROM {texts.source}{where}{rest}"  # noqa: S608 - made of the client's own

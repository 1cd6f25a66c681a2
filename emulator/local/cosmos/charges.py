"""The price of an operation, in request units.

Published anchors (learn.microsoft.com/azure/cosmos-db/optimize-cost-reads-writes): a point read of
1 KB is 1 RU and of 100 KB 10 RU; an insert without indexing is about 5.5 RU at 1 KB and 50 RU at
100 KB; a replace is about twice an insert; reads under strong or bounded staleness cost twice.
Between the anchors the line is straight, in steps of a started KB. A patch costs what a replace by
its result would ("Partial document update", questions and answers: there is no reduction).

Estimates, because no table is published: half a unit per indexed property of a write; a delete like
an insert of that size without indexing; a query 2.3 RU and a tenth of a point read's price for each
item it had to look at, which are those that no index rules out; one unit for metadata and for what
is refused. A batch is the sum of its operations. The plan of a query is free.
"""

from math import ceil

KILOBYTE = 1024
INDEXED_PROPERTY = 0.5
METADATA = 1.0
REFUSAL = 1.0
QUERY_BASE = 2.3
QUERY_PER_ITEM = 0.1


def interpolate(size: int, at_1_kb: float, at_100_kb: float) -> float:
    """The line through the two anchors at `size` bytes, rounded up to a started kilobyte."""
    kilobytes = max(1, ceil(size / KILOBYTE))
    return at_1_kb + (kilobytes - 1) * (at_100_kb - at_1_kb) / 99


def read(size: int, *, is_strong: bool) -> float:
    return round(interpolate(size, 1.0, 10.0) * (2 if is_strong else 1), 2)


def insert(size: int, indexed: int) -> float:
    """Return the price of a create, or of an upsert that creates."""
    return round(interpolate(size, 5.5, 50.0) + indexed * INDEXED_PROPERTY, 2)


def replace(size: int, indexed: int) -> float:
    """Return the price of a replace, a patch, or an upsert that replaces."""
    return round(2 * insert(size, indexed), 2)


def delete(size: int) -> float:
    return round(interpolate(size, 5.5, 50.0), 2)


def query(sizes: list[int], *, is_strong: bool) -> float:
    """Return the price of a query's or a change feed's page that looked at items of these sizes."""
    items = sum(interpolate(size, 1.0, 10.0) for size in sizes) * QUERY_PER_ITEM
    return round((QUERY_BASE + items) * (2 if is_strong else 1), 2)

"""The indexes that a query used or could have used, as `x-ms-cosmos-index-utilization` has them.

It follows from the query and the indexing policy alone. Every score is High, filters are empty, and
no composite index is proposed: for these Azure has statistics, and nothing here has any.
"""

import base64

from local.cosmos.items.containers import Container
from local.cosmos.items.indexing import IndexPath, OrderPaths
from local.cosmos.query.plan import QueryPlan, find_index_paths, list_conjuncts
from local.cosmos.responses import write_json
from local.cosmos.sql.syntax import Query


def write_index_metrics(query: Query, plan: QueryPlan, container: Container) -> str:
    """The header's text for a query that is servable: base64 of JSON."""
    used: set[IndexPath] = set()
    wanted: set[IndexPath] = set()
    if plan.has_partition and container.key_path.names:
        used.add(container.key_path.names)
    for conjunct in list_conjuncts(query.condition):
        paths = find_index_paths(conjunct) or set()
        missing = {path for path in paths if not container.policy.covers(path)}
        # One path without an index has the whole part of the condition scanned.
        wanted |= missing
        used |= set() if missing else paths
    order = tuple((key.path, key.is_descending) for key in query.order)
    if len(order) == 1:
        used.add(order[0][0])
    document = {
        "UtilizedSingleIndexes": describe_single(used),
        "PotentialSingleIndexes": describe_single(wanted - used),
        "UtilizedCompositeIndexes": describe_composite(order) if len(order) > 1 else [],
        "PotentialCompositeIndexes": [],
    }
    return base64.b64encode(write_json(document).encode()).decode()


def describe_single(paths: set[IndexPath]) -> list[dict[str, object]]:
    return [
        {
            "FilterExpression": "",
            "IndexSpec": f"{write_path(path)}/?",
            "FilterPreciseSet": True,
            "IndexPreciseSet": True,
            "IndexImpactScore": "High",
        }
        for path in sorted(paths)
    ]


def describe_composite(order: OrderPaths) -> list[dict[str, object]]:
    specs = [
        f"{write_path(path)} {'DESC' if is_descending else 'ASC'}" for path, is_descending in order
    ]
    return [{"IndexSpecs": specs, "IndexPreciseSet": True, "IndexImpactScore": "High"}]


def write_path(path: IndexPath) -> str:
    """Write a path as an indexing policy has it; what is no plain name is quoted."""
    steps = (
        name if name == "[]" or name.replace("-", "_").isidentifier() else write_json(name)
        for name in path
    )
    return "".join(f"/{step}" for step in steps)

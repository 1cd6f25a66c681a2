"""The indexes that a query used or could have used, as `x-ms-cosmos-index-utilization` has them.

It follows from the query and the indexing policy alone. Every score is High, filters are empty, and
no composite index is proposed: for these Azure has statistics, and nothing here has any.
"""

import base64
from dataclasses import dataclass
from string import punctuation
from urllib.parse import quote

from local.cosmos.items.containers import Container
from local.cosmos.items.indexing import IndexPath, OrderPaths
from local.cosmos.query.plan import QueryPlan, find_index_paths, list_conjuncts
from local.cosmos.responses import write_json
from local.cosmos.sql.syntax import Query

PLAIN = (
    punctuation.replace("%", "").replace("+", "") + " "
)  # what a percent code need not stand for


@dataclass(frozen=True, slots=True)
class IndexMetrics:
    """The paths whose index a query used, and those that had none; `order` needs a composite one.

    Clients ask for them in one of two forms, by two headers.
    """

    used: frozenset[IndexPath]
    lacking: frozenset[IndexPath]
    order: OrderPaths

    def write_base64(self) -> str:
        """Write base64 of JSON, as Python's client reads it."""
        document = {
            "UtilizedSingleIndexes": describe_single(self.used),
            "PotentialSingleIndexes": describe_single(self.lacking),
            "UtilizedCompositeIndexes": describe_composite(self.order),
            "PotentialCompositeIndexes": [],
        }
        return base64.b64encode(write_json(document).encode()).decode()

    def write_json(self) -> str:
        """Write JSON, as the clients of .NET and JavaScript read it: they undo percent codes."""
        used = [{"IndexSpec": write_spec(path)} for path in sorted(self.used)]
        lacking = [
            {"IndexSpec": write_spec(path), "IndexImpactScore": "High"}
            for path in sorted(self.lacking)
        ]
        composite = [{"IndexSpecs": write_specs(self.order)}] if self.order else []
        document = {
            "Utilized": {"SingleIndexes": used, "CompositeIndexes": composite},
            "Potential": {"SingleIndexes": lacking, "CompositeIndexes": []},
        }
        return quote(write_json(document), safe=PLAIN)


def find_index_metrics(query: Query, plan: QueryPlan, container: Container) -> IndexMetrics:
    """Find the indexes of a query that is servable."""
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
    return IndexMetrics(frozenset(used), frozenset(wanted - used), order if len(order) > 1 else ())


def describe_single(paths: frozenset[IndexPath]) -> list[dict[str, object]]:
    return [
        {
            "FilterExpression": "",
            "IndexSpec": write_spec(path),
            "FilterPreciseSet": True,
            "IndexPreciseSet": True,
            "IndexImpactScore": "High",
        }
        for path in sorted(paths)
    ]


def describe_composite(order: OrderPaths) -> list[dict[str, object]]:
    one = {"IndexSpecs": write_specs(order), "IndexPreciseSet": True, "IndexImpactScore": "High"}
    return [one] if order else []


def write_spec(path: IndexPath) -> str:
    return f"{write_path(path)}/?"


def write_specs(order: OrderPaths) -> list[str]:
    return [
        f"{write_path(path)} {'DESC' if is_descending else 'ASC'}" for path, is_descending in order
    ]


def write_path(path: IndexPath) -> str:
    """Write a path as an indexing policy has it; what is no plain name is quoted."""
    steps = (
        name if name == "[]" or name.replace("-", "_").isidentifier() else write_json(name)
        for name in path
    )
    return "".join(f"/{step}" for step in steps)

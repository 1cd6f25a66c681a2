"""How much of a query SQLite answers, and with which index."""

from collections.abc import Iterator

import pytest

from local.cosmos.catalogue import Catalogue, Container
from local.cosmos.query_parser import parse_query
from local.cosmos.query_plan import Plan, plan_query
from local.cosmos.query_run import statement
from local.cosmos.storage import Storage


@pytest.fixture
def storage() -> Iterator[Storage]:
    opened = Storage()
    yield opened
    opened.close()


@pytest.fixture
def journal(storage: Storage) -> Container:
    catalogue = Catalogue(storage, lambda: 0.0)
    catalogue.create_database("lockstep")
    document = {"id": "journal", "partitionKey": {"paths": ["/session"]}}
    return catalogue.create_container("lockstep", document)


def plan_of(journal: Container, text: str, key: str | None = None) -> Plan:
    return plan_query(parse_query(text, {}), journal, key)


def steps(storage: Storage, plan: Plan) -> str:
    """What SQLite says it will do."""
    sql, values = statement(plan, 0, None)
    rows = storage.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
    return " / ".join(str(row[3]) for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT TOP 1 * FROM c ORDER BY c.id DESC",
        "SELECT TOP 1 * FROM c WHERE c.id < '5' ORDER BY c.id DESC",
        "SELECT * FROM c WHERE c.id >= '1' AND c.id < '5'",
        "SELECT * FROM c WHERE STARTSWITH(c.id, '00')",
    ],
)
def test_ids_of_one_partition_are_walked_in_the_index_without_sorting(
    storage: Storage, journal: Container, text: str
) -> None:
    seen = steps(storage, plan_of(journal, text, '"DL1742"'))

    assert "items_by_id (container=? AND partition=?" in seen
    assert "TEMP B-TREE" not in seen


def test_a_partition_named_in_the_condition_is_used_like_one_in_the_request(
    storage: Storage, journal: Container
) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c.session = 'DL1742' ORDER BY c.id DESC")

    assert plan.has_partition
    assert plan.residual == []
    assert "TEMP B-TREE" not in steps(storage, plan)


def test_only_what_sql_cannot_decide_is_left_over(journal: Container) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c._ts > 5 AND c.id != 'x' AND c.n = 1")

    assert len(plan.residual) == 1


def test_a_disjunction_is_never_split(journal: Container) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c.id = 'x' OR c.session = 'y'")

    assert len(plan.residual) == 1
    assert not plan.has_partition

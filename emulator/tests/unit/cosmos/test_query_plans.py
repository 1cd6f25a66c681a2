"""How much of a query SQLite answers, and with which index."""

from collections.abc import Iterator

import pytest

from local.cosmos.items.containers import Catalogue, Container
from local.cosmos.items.documents import PartitionItems
from local.cosmos.items.storage import Storage
from local.cosmos.query.paging import QueryRequest, QueryRun, write_statement
from local.cosmos.query.plan import QueryPlan, plan_query
from local.cosmos.sql.parser import parse_query


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


def plan_of(journal: Container, text: str, key: str | None = None) -> QueryPlan:
    return plan_query(parse_query(text, {}), journal, key)


def steps(storage: Storage, plan: QueryPlan) -> str:
    """What SQLite says it will do."""
    sql, values = write_statement(plan, 0, None)
    rows = storage.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
    return " / ".join(str(row[3]) for row in rows)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT TOP 1 * FROM c ORDER BY c.id DESC",
        "SELECT TOP 1 * FROM c WHERE c.id < '5' ORDER BY c.id DESC",
        "SELECT * FROM c WHERE c.id >= '1' AND c.id < '5' ORDER BY c.id",
        "SELECT * FROM c WHERE STARTSWITH(c.id, '00') ORDER BY c.id",
    ],
)
def test_ids_of_one_partition_are_walked_in_the_index_without_sorting(
    storage: Storage, journal: Container, text: str
) -> None:
    seen = steps(storage, plan_of(journal, text, '"DL1742"'))

    assert "items_by_id (container=? AND partition=?" in seen
    assert "TEMP B-TREE" not in seen


@pytest.mark.parametrize(("key", "index"), [('"DL1742"', "of_a_partition"), (None, "by_birth")])
def test_what_has_no_order_is_read_as_it_was_created_without_sorting(
    storage: Storage, journal: Container, key: str | None, index: str
) -> None:
    plan = plan_of(journal, "SELECT * FROM c", key)
    if key is None:
        plan.narrow("pkrange = ?", 0)
    seen = steps(storage, plan)

    assert f"items_{index} (container=? AND p" in seen
    assert "TEMP B-TREE" not in seen


def test_a_partition_named_in_the_condition_is_used_like_one_in_the_request(
    storage: Storage, journal: Container
) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c.session = 'DL1742' ORDER BY c.id DESC")

    assert plan.has_partition
    assert (plan.served, plan.scanned) == ([], [])
    assert "TEMP B-TREE" not in steps(storage, plan)


def test_only_what_sql_cannot_decide_is_left_over(journal: Container) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c._ts > 5 AND c.id != 'x' AND c.n = 1")

    assert len(plan.served + plan.scanned) == 1


def test_a_disjunction_is_never_split(journal: Container) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c.id = 'x' OR c.session = 'y'")

    assert len(plan.served + plan.scanned) == 1
    assert not plan.has_partition


def test_what_an_index_serves_is_told_from_what_needs_a_look_at_every_item(
    journal: Container,
) -> None:
    plan = plan_of(journal, "SELECT * FROM c WHERE c.n > 1 AND LOWER(c.a) = 'x' AND c.b = 2")

    assert len(plan.served) == 2
    assert len(plan.scanned) == 1


@pytest.mark.parametrize(
    "condition",
    [
        """c["odd \\"name"] = 'é " \\u0041'""",
        "ARRAY_CONTAINS(c.l, 'a\\nb')",
        "ARRAY_CONTAINS(c.m, {'p': 'é\\nb', 'n': 1}, true)",
        "IS_DEFINED(c.o.p)",
        "'x' = c.s",
        "c.s != 'y'",
        "c.l[1] = 'a\\nb'",
        "NOT c.o.p = 'x'",
        "c.absent = 1 OR c.s = 'x'",
        "c.s = 'y' OR (c.id = '1' AND ARRAY_CONTAINS(c.l, 'x')) OR c.absent = 1",
        "c.absent = 1 OR NOT c.absent = 'x' OR c.o.p = 'p'",
        "(c.absent = 1 OR c.s = 'x') AND (c.s = 'x' OR c.s = 'z')",
        " OR ".join(f"c.s = '{letter}'" for letter in "abcdefghijklmnopqrstuvwxyz" * 60),
    ],
)
def test_the_texts_that_sqlite_looks_for_are_in_every_item_that_meets_the_condition(
    storage: Storage, journal: Container, condition: str
) -> None:
    item = {
        "id": "1",
        'odd "name': 'é " A',
        "l": ["x", "a\nb"],
        "m": [{"p": "x"}, {"n": 1.0, "p": "é\nb"}],
        "o": {"p": "p"},
        "s": "x",
        "session": "s",
    }
    PartitionItems(storage, journal, '"s"', lambda: 0.0).create(item)
    request = QueryRequest(f"SELECT VALUE c.id FROM c WHERE {condition}", {}, key='"s"')

    assert QueryRun(storage, journal, request).read_page(0).results == ['"1"']


def test_what_meets_no_part_of_a_disjunction_is_ruled_out_by_sqlite(
    storage: Storage, journal: Container
) -> None:
    items = PartitionItems(storage, journal, '"s"', lambda: 0.0)
    shown: tuple[dict[str, object], ...] = (
        {},
        {"faulted": True},
        {"owing": ["east"]},
        {"owing": ["west"]},
    )
    for number, own in enumerate(shown):
        items.create({"id": str(number), "session": "s"} | own)
    text = (
        "SELECT * FROM c WHERE c.faulted = true OR (ARRAY_CONTAINS(c.owing, 'east') AND c._ts = 0)"
    )

    sql, values = write_statement(plan_of(journal, text), 0, None)
    found = storage.connection.execute(sql, values)

    assert [row[1] for row in found] == ["1", "2"]

"""Queries that come in pages and from several physical partitions, through both clients."""

import base64
from collections.abc import AsyncIterator, Callable, Iterator
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import RunningAccount, running_account
from wire.cosmos_clients import (
    CLIENTS,
    container_of,
    every,
    everywhere,
    first_page,
    pages_of,
)

pytestmark = pytest.mark.wire

LONG = [f"{at:05}" for at in range(95)]
TAILS, NUMBERS = 20, range(100)


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    """A journal with a session of 95 entries and a neighbour; numbered flights of many tails."""
    with running_account() as running:
        for start in range(0, len(LONG), 50):
            chunk = LONG[start : start + 50]
            entries = [("create", ({**entry(one), "n": int(one) % 7},)) for one in chunk]
            running.journal.execute_item_batch(entries, partition_key="long")
        running.journal.create_item({"id": "99999", "session": "short"})
        for n in Random(7).sample(NUMBERS, len(NUMBERS)):
            running.divided.create_item(flight(n))
        yield running


@pytest.fixture(params=CLIENTS)
async def divided(account: RunningAccount, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with container_of(request.param, account, "divided") as container:
        yield container


def entry(item_id: str) -> dict[str, Any]:
    """An entry of the long session."""
    return {"id": item_id, "session": "long"}


def flight(n: int) -> dict[str, Any]:
    """A flight of one of the tails, with a number of its own."""
    return {"id": f"{n:03}", "tail": f"N{n % TAILS}", "n": n, "gate": f"B{n % 3}"}


@pytest.mark.parametrize("order", ["", "ORDER BY c.id", "ORDER BY c.id DESC", "ORDER BY c._ts"])
async def test_pages_join_to_the_whole_without_gap_or_overlap(journal: Any, order: str) -> None:
    text = f"SELECT VALUE c.id FROM c {order}"
    query = journal.query_items(text, partition_key="long", max_item_count=20)

    pages = await pages_of(query.by_page())

    assert [len(page) for page in pages] == [20, 20, 20, 20, 15]
    everything = LONG[::-1] if "DESC" in order else LONG
    assert [one for page in pages for one in page] == everything


ODD_TEXTS = ["", "Z", "a", "a\0b", 'a"b', "aa", "\u00e9", "\uffff", "\U0001f600"]


@pytest.mark.parametrize("direction", ["", "DESC"])
@pytest.mark.parametrize(
    ("condition", "is_meant"),
    [
        ("true", lambda _: True),
        ("c.text >= ''", lambda _: True),
        ("c.text > 'a'", lambda text: text > "a"),
        ("c.text >= '' AND STARTSWITH(c.text, 'a')", lambda text: text.startswith("a")),
    ],
)
async def test_texts_are_ordered_by_their_characters_whether_sql_sorts_them_or_not(
    account: RunningAccount, condition: str, is_meant: Callable[[str], bool], direction: str
) -> None:
    for n, text in enumerate(Random(3).sample([*ODD_TEXTS, *ODD_TEXTS], 2 * len(ODD_TEXTS))):
        account.flights.upsert_item({"id": f"{n}", "tail": "odd", "text": text, "n": n})
    text = f"SELECT c.text, c.n FROM c WHERE {condition} ORDER BY c.text {direction}"

    pages = await pages_of(
        account.flights.query_items(text, partition_key="odd", max_item_count=5).by_page()
    )

    found = [(one["text"], one["n"]) for page in pages for one in page]
    assert len(found) == 2 * sum(map(is_meant, ODD_TEXTS))
    assert found == sorted(found, reverse=bool(direction))


async def test_a_query_resumes_from_a_token_behind_what_was_shown(journal: Any) -> None:
    text = "SELECT VALUE c.id FROM c ORDER BY c.id DESC OFFSET 5 LIMIT 30"
    pages = journal.query_items(text, partition_key="long", max_item_count=20).by_page()
    shown = await first_page(pages)

    rest = journal.query_items(text, partition_key="long", max_item_count=20)
    resumed = await pages_of(rest.by_page(pages.continuation_token))

    expected = LONG[89:59:-1]
    assert shown == expected[:20]
    assert resumed == [expected[20:]]


async def test_what_is_written_between_two_pages_shifts_nothing(
    account: RunningAccount, journal: Any
) -> None:
    name = str(uuid4())
    session = {"partition_key": name, "max_item_count": 2}
    for item_id in ("b", "d", "f", "h"):
        account.journal.create_item({"id": item_id, "session": name, "owing": "east"})
    text = "SELECT VALUE c.id FROM c ORDER BY c.owing"
    pages = journal.query_items(text, **session).by_page()
    shown = await first_page(pages)
    account.journal.create_item({"id": "a", "session": name, "owing": "boston"})
    account.journal.delete_item("b", name)
    account.journal.replace_item("f", {"id": "f", "session": name, "owing": "west"})

    resumed = await pages_of(journal.query_items(text, **session).by_page(pages.continuation_token))

    assert (shown, resumed) == (["b", "d"], [["h", "f"]])


async def test_distinct_results_come_in_pages_too(journal: Any) -> None:
    text = "SELECT DISTINCT VALUE c.n FROM c"
    pages = journal.query_items(text, partition_key="long", max_item_count=4).by_page()
    shown = await first_page(pages)

    rest = journal.query_items(text, partition_key="long", max_item_count=4)
    resumed = await pages_of(rest.by_page(pages.continuation_token))

    assert (shown, resumed) == ([0, 1, 2, 3], [[4, 5, 6]])


async def test_a_token_of_another_query_is_refused(journal: Any) -> None:
    pages = journal.query_items("SELECT * FROM c", partition_key="long", max_item_count=5).by_page()
    await first_page(pages)

    other = journal.query_items("SELECT c.id FROM c", partition_key="long")
    with pytest.raises(CosmosHttpResponseError, match="another query"):
        await pages_of(other.by_page(pages.continuation_token))


async def test_a_query_without_an_order_is_resumed_over_all_partitions(divided: Any) -> None:
    text = "SELECT VALUE c.n FROM c WHERE c.n >= @least"
    asked = {"parameters": [{"name": "@least", "value": 40}], "max_item_count": 17}
    pages = everywhere(divided, text, **asked).by_page()
    shown = await first_page(pages)

    resumed = await pages_of(everywhere(divided, text, **asked).by_page(pages.continuation_token))

    pages_of_numbers = [shown, *resumed]
    assert [len(page) for page in pages_of_numbers] == [15, 9, 15, 6, 15]
    assert sorted(one for page in pages_of_numbers for one in page) == list(range(40, 100))


async def test_a_page_ends_with_its_physical_partition_be_it_empty(
    account: RunningAccount, divided: Any
) -> None:
    text = "SELECT VALUE c.n FROM c WHERE c.n IN (1, 2, 3)"
    before = account.counted("query").get("200", 0)
    pages = await pages_of(everywhere(divided, text, max_item_count=100).by_page())

    # The clients pass over the pages of three partitions, in which there is nothing.
    assert [sorted(page) for page in pages] == [[1, 3], [2]]
    assert account.counted("query")["200"] - before == 5


async def test_without_an_order_items_come_as_they_were_created_not_by_their_ids(
    account: RunningAccount,
) -> None:
    ids = ["b", "d", "a", "c"]
    for item_id in ids:
        account.flights.create_item({"id": item_id, "tail": "mixed"})
    account.flights.upsert_item({"id": "d", "tail": "mixed", "changed": True})
    asked: dict[str, Any] = {"partition_key": "mixed", "max_item_count": 3}
    pages = await pages_of(account.flights.query_items("SELECT * FROM c", **asked).by_page())

    assert [one["id"] for page in pages for one in page] == ids


async def test_partitions_are_merged_in_the_order_asked_for(divided: Any) -> None:
    numbers = await every(everywhere(divided, "SELECT VALUE c.n FROM c ORDER BY c.n"))
    items = await every(everywhere(divided, "SELECT * FROM c ORDER BY c.n DESC", max_item_count=3))

    assert numbers == list(NUMBERS)
    assert [own(one) for one in items] == [flight(n) for n in reversed(NUMBERS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT TOP 3 c.n FROM c WHERE c.n < 50 ORDER BY c.n DESC", [49, 48, 47]),
        ("SELECT c.n FROM c ORDER BY c.n OFFSET 37 LIMIT 4", [37, 38, 39, 40]),
        ("SELECT c.n FROM c WHERE c.tail = 'N3' ORDER BY c.n", [3, 23, 43, 63, 83]),
        ("SELECT c.n FROM c WHERE c.n < 8 AND ENDSWITH(c.id, '7') ORDER BY c.n", [7]),
        ("SELECT c.n FROM c WHERE c.n > 1000 ORDER BY c.n", []),
        ("SELECT DISTINCT c.gate FROM c ORDER BY c.gate DESC", ["B2", "B1", "B0"]),
        ("SELECT DISTINCT TOP 2 c.gate FROM c ORDER BY c.gate", ["B0", "B1"]),
    ],
)
async def test_a_part_of_a_merged_order_is_cut_out(
    divided: Any, text: str, expected: list[Any]
) -> None:
    found = await every(everywhere(divided, text))

    assert [value for one in found for value in one.values()] == expected


async def test_as_many_results_as_asked_for_come_in_no_order(divided: Any) -> None:
    some = await every(everywhere(divided, "SELECT TOP 30 VALUE c.n FROM c"))
    rest = await every(everywhere(divided, "SELECT VALUE c.n FROM c OFFSET 60 LIMIT 99"))
    gates = await every(everywhere(divided, "SELECT DISTINCT VALUE c.gate FROM c"))

    assert (len(set(some)), len(set(rest))) == (30, 40)
    assert sorted(gates) == ["B0", "B1", "B2"]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("COUNT(1)", 100),
        ("SUM(c.n)", 4950),
        ("AVG(c.n)", 49.5),
        ("MIN(c.n)", 0),
        ("MAX(c.n)", 99),
        ("MIN(c.gate)", "B0"),
        ("MAX(c.tail)", "N9"),
        ("COUNT(c.absent)", 0),
        ("SUM(c.absent)", 0),
        ("MAX(c.absent)", None),  # the client's word for undefined
    ],
)
async def test_aggregates_are_put_together_from_all_partitions(
    divided: Any, aggregate: str, expected: Any
) -> None:
    assert await every(everywhere(divided, f"SELECT VALUE {aggregate} FROM c")) == [expected]


async def test_each_physical_partition_answers_for_itself(divided: Any) -> None:
    ranges = await every(divided.read_feed_ranges())
    text = "SELECT VALUE c.n FROM c ORDER BY c.n"
    parts = [await every(divided.query_items(text, feed_range=one)) for one in ranges]

    assert len(parts) == 5
    assert all(part == sorted(part) for part in parts)
    assert sorted(n for part in parts for n in part) == list(NUMBERS)


def test_the_newest_entry_of_a_partition_costs_one_looked_at_item(account: RunningAccount) -> None:
    text = "SELECT TOP 1 * FROM c WHERE c.id < @end ORDER BY c.id DESC"

    found, charge = charged(account, text, [{"name": "@end", "value": "9"}])

    assert [one["id"] for one in found] == ["00094"]
    assert charge == 4.8  # (2.3 + 0.1) twice, for strong consistency


def test_items_that_an_index_rules_out_cost_nothing(account: RunningAccount) -> None:
    account.journal.create_item({**entry("owing"), "owing": ["east", "west"]})
    account.journal.create_item({**entry("paid"), "owing": ["west"]})

    indexed, cheap = charged(account, "SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.owing)", [])
    scanned, dear = charged(account, "SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.debt)", [])

    account.journal.delete_item("owing", "long")
    account.journal.delete_item("paid", "long")
    assert (indexed, cheap) == (["owing", "paid"], round(2 * (2.3 + 2 * 0.1), 2))
    assert (scanned, dear) == ([], round(2 * (2.3 + (len(LONG) + 2) * 0.1), 2))


def test_an_order_by_an_index_costs_what_is_shown_of_it(account: RunningAccount) -> None:
    found, charge = charged(account, "SELECT TOP 3 VALUE c.id FROM c ORDER BY c._ts", [])

    assert found == LONG[:3]
    assert charge == round(2 * (2.3 + 3 * 0.1), 2)


def charged(
    account: RunningAccount, text: str, parameters: list[dict[str, Any]]
) -> tuple[list[Any], float]:
    """The results of a query over the long session, and its request units."""
    charges: list[float] = []

    def keep(headers: Any, _: Any) -> None:
        charges.append(float(headers["x-ms-request-charge"]))

    found = account.journal.query_items(
        text, parameters=parameters, partition_key="long", response_hook=keep
    )
    return list(found), sum(charges)


def own(document: dict[str, Any]) -> dict[str, Any]:
    """A document without its system properties."""
    return {name: value for name, value in document.items() if not name.startswith("_")}


@pytest.mark.parametrize("at", [0, 10, -1])
@pytest.mark.parametrize("instead", [b"", b"-", b"99999999999999999999"])
def test_a_token_that_was_changed_is_refused(
    account: RunningAccount, at: int, instead: bytes
) -> None:
    path, page = "/dbs/lockstep/colls/divided/docs", {"x-ms-max-item-count": "1"}
    port = account.cosmos.port
    _, headers, _ = account.ask(port, "GET", path, headers=page)
    token = base64.urlsafe_b64decode(headers["x-ms-continuation"])
    at %= len(token)
    changed = base64.urlsafe_b64encode(token[:at] + instead + token[at + 1 :]).decode()

    status, _, document = account.ask(
        port, "GET", path, headers=page | {"x-ms-continuation": changed}
    )

    assert (status, document["message"]) == (400, "the continuation token is damaged")

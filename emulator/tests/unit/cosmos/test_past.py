"""What is kept of the past while reads may be late."""

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from local.cosmos.items.containers import Catalogue, Container
from local.cosmos.items.documents import PartitionItems
from local.cosmos.items.storage import Storage
from local.cosmos.responses import RequestRefused

NAMES = ("a", "b", "c", "d")


class Store:
    """Items in two physical partitions, and a clock that goes on by a second at each write."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.storage = Storage(clock=lambda: self.seconds)
        catalogue = Catalogue(self.storage, lambda: 0.0)
        catalogue.create_database("lockstep")
        document = {"id": "journal", "partitionKey": {"paths": ["/session"]}}
        self.journal: Container = catalogue.create_container("lockstep", document, 2)

    def items(self, name: str) -> PartitionItems:
        """The items of the partition of a name."""
        return PartitionItems(self.storage, self.journal, f'"{name}"', lambda: 0.0)

    def write(self, name: str, number: int) -> None:
        """A new version of an item; a negative number deletes it."""
        self.seconds += 1
        with suppress(RequestRefused), self.storage.transaction():
            if number < 0:
                self.items(name).delete(name, None)
            else:
                self.items(name).upsert({"id": name, "session": name, "n": number}, None)

    def content(self) -> list[tuple[str, str]]:
        """Everything that a read finds."""
        return self.storage.connection.execute("SELECT id, body FROM items ORDER BY id").fetchall()

    def lsns(self) -> list[int]:
        """Where the physical partitions stand."""
        return [self.storage.find_lsn(self.journal.number, number) for number in (0, 1)]

    def kept(self) -> int:
        """How many old versions are kept."""
        row = self.storage.connection.execute("SELECT count(*) FROM temp.past").fetchone()
        return int(row[0])


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store()
    yield store
    store.storage.close()


def test_every_moment_within_reach_is_shown_as_it_was(store: Store) -> None:
    choose = random.Random(7)
    store.write("a", 0)
    store.storage.keep_versions(1_000)
    was = {}
    for number in range(200):
        store.write(choose.choice(NAMES), choose.choice((number, number, -1)))
        was[store.seconds] = store.content(), store.lsns()

    for seconds, state in was.items():
        with store.storage.show_past(store.seconds - seconds):
            assert (store.content(), store.lsns()) == state
    assert (store.content(), store.lsns()) == was[store.seconds]


def test_no_moment_is_older_than_the_first_that_is_remembered(store: Store) -> None:
    for number in range(3):
        store.write("a", number)
    first = store.content()
    store.storage.keep_versions(1_000)
    store.write("a", 3)

    with store.storage.show_past(1_000):
        assert store.content() == first


def test_what_is_out_of_reach_is_forgotten(store: Store) -> None:
    store.storage.keep_versions(10)
    for number in range(100):
        store.write("a", number)

    assert 10 <= store.kept() <= 11
    with store.storage.show_past(10):
        assert '"n":89' in store.content()[0][1]


def test_nothing_is_kept_before_it_is_asked_for_nor_after_it_is_let_go(store: Store) -> None:
    def temporary() -> int:
        row = store.storage.connection.execute("SELECT count(*) FROM sqlite_temp_schema").fetchone()
        return int(row[0])

    assert temporary() == 0
    store.storage.keep_versions(10)
    store.write("a", 0)
    assert temporary() > 0
    store.storage.keep_versions(None)
    store.storage.keep_versions(None)
    assert temporary() == 0
    store.write("a", 1)
    assert '"n":1' in store.content()[0][1]


def test_what_a_failed_transaction_replaced_is_not_in_the_past(store: Store) -> None:
    store.write("a", 0)
    store.storage.keep_versions(1_000)

    with suppress(RequestRefused), store.storage.transaction():
        store.items("a").upsert({"id": "a", "session": "a", "n": 1}, None)
        store.items("a").delete("missing", None)

    assert store.kept() == 0
    assert '"n":0' in store.content()[0][1]
    with store.storage.show_past(0):
        assert '"n":0' in store.content()[0][1]

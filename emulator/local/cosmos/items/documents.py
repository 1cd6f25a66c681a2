"""Single items: read, create, replace, upsert, patch, delete; for a request and within a batch.

Nothing here opens a transaction around writes: the caller does, around one or around a hundred.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from local.cosmos import charges
from local.cosmos.exact_json import read_json, write_exactly
from local.cosmos.items.containers import (
    SYSTEM_PROPERTIES,
    Container,
    check_id,
    is_ttl,
    write_resource_id,
)
from local.cosmos.items.patch import ItemPatch
from local.cosmos.items.storage import Storage
from local.cosmos.items.unique_keys import check_unique
from local.cosmos.responses import BadRequest, NotOffered, RequestRefused

ITEM_BYTES_MAX = 2 * 1024 * 1024
LEVELS_MAX = 128  # of nesting, by "Azure Cosmos DB service quotas"


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it lies in the table; `body` is its JSON text, system properties included.

    `number` was given to the item when it was created, `version` to this version of it.
    """

    version: int
    number: int
    body: str

    @property
    def etag(self) -> str:
        return write_etag(self.version)


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of an operation on an item; `charge` is in request units."""

    status: int
    charge: float
    body: str = ""
    etag: str = ""


class PartitionItems:
    """The items of one logical partition of a container: those with the canonical key `key`.

    `now` is the account's clock in seconds since 1970.
    """

    def __init__(
        self, storage: Storage, container: Container, key: str, now: Callable[[], float]
    ) -> None:
        self._storage = storage
        self._container = container
        self._key = key
        self._now = now
        self._physical = container.number, container.ring.find_partition(key)

    def read(self, item_id: str, *, is_strong: bool = True) -> ItemResult:
        """The item; a 404 when it does not exist."""
        stored = self._find_existing(item_id)
        charge = charges.read(len(stored.body.encode()), is_strong=is_strong)
        return ItemResult(200, charge, stored.body, stored.etag)

    def create(self, document: Any) -> ItemResult:
        """A new item; a 409 when its id is taken in this partition."""
        item_id = self._check(document)
        if self._find(item_id) is not None:
            raise RequestRefused(409, f"item {item_id!r} exists already in partition {self._key}")
        return self._write(item_id, document, None)

    def replace(self, item_id: str, document: Any, if_match: str | None) -> ItemResult:
        """A new version of an existing item; 404 when absent, 412 when its tag is another.

        A document with another id gives the item that id; a 409 when it is taken.
        """
        new_id = self._check(document)
        stored = self._find_existing(item_id, if_match)
        if new_id != item_id:
            if self._find(new_id) is not None:
                message = f"item {new_id!r} exists already in partition {self._key}"
                raise RequestRefused(409, message)
            erase = "DELETE FROM items WHERE version = ?"
            self._storage.connection.execute(erase, (stored.version,))
        return self._write(new_id, document, stored)

    def upsert(self, document: Any, if_match: str | None) -> ItemResult:
        """Create, or replace what is there; 412 when what is there has another tag.

        With If-Match on an absent item the service's behaviour is not documented: refused.
        """
        item_id = self._check(document)
        stored = self._find(item_id)
        if stored is None and if_match is not None:
            raise NotOffered("If-Match on an upsert that creates")
        if stored is not None:
            check_tag(stored, if_match)
        return self._write(item_id, document, stored)

    def patch(self, item_id: str, patch: ItemPatch, if_match: str | None) -> ItemResult:
        """Change parts of an existing item.

        404 when absent, 412 when its tag is another or the patch's own condition does not hold, 400
        when a change cannot be made. It costs what a replace would.
        """
        patch.check_key(self._container.key_path.names)
        stored = self._find_existing(item_id, if_match)
        document = read_json(stored.body)
        patch.check_condition(document)
        patch.apply(document)
        self._check(document)
        return self._write(item_id, document, stored)

    def delete(self, item_id: str, if_match: str | None) -> ItemResult:
        """Remove an item; 404 when absent, 412 when its tag is another."""
        stored = self._find_existing(item_id, if_match)
        self._storage.take_version()
        self._storage.take_lsn(*self._physical)
        self._storage.connection.execute("DELETE FROM items WHERE version = ?", (stored.version,))
        return ItemResult(204, charges.delete(len(stored.body.encode())))

    def find_id(self, number: int) -> str:
        """The id of the item with a number; a 404 when it does not exist."""
        row = self._storage.connection.execute(
            "SELECT id FROM items WHERE container = ? AND partition = ? AND birth = ?",
            (self._container.number, self._key, number),
        ).fetchone()
        if row is None:
            message = f"no item of this resource id exists in partition {self._key}"
            raise RequestRefused(404, message)
        return str(row[0])

    def _find_existing(self, item_id: str, if_match: str | None = None) -> StoredItem:
        stored = self._find(item_id)
        if stored is None:
            message = f"no item with id {item_id!r} exists in partition {self._key}"
            raise RequestRefused(404, message)
        check_tag(stored, if_match)
        return stored

    def _find(self, item_id: str) -> StoredItem | None:
        row = self._storage.connection.execute(
            "SELECT version, birth, body FROM items"
            " WHERE container = ? AND partition = ? AND id = ?"
            " AND (expires IS NULL OR expires > ?)",
            (self._container.number, self._key, item_id, int(self._now())),
        ).fetchone()
        return StoredItem(*row) if row else None

    def _check(self, document: Any) -> str:
        """The id of a document that may be written here; a 400 when it may not."""
        if not isinstance(document, dict):
            raise BadRequest("an item must be a JSON object")
        item_id = check_id(document.get("id"))
        if self._container.key_path.read(document) != self._key:
            message = "the partition key of the document differs from the one of the request"
            raise BadRequest(message, substatus=1001)
        if "ttl" in document and not is_ttl(document["ttl"]):
            raise BadRequest("ttl must be -1 or a positive whole number")
        return item_id

    def _write(
        self, item_id: str, document: dict[str, Any], before: StoredItem | None
    ) -> ItemResult:
        version = self._storage.take_version()
        number = before.number if before else version
        now = int(self._now())
        container = self._container
        own = {name: value for name, value in document.items() if name not in SYSTEM_PROPERTIES}
        check_unique(
            self._storage,
            container.unique_keys,
            own,
            place=(container.number, self._key),
            number=number,
            now=now,
        )
        # Clients that merge a sorted query read the number of an item, lowest byte first, from the
        # end of its resource id.
        rid = write_resource_id(container.rid_bytes + number.to_bytes(8, "little"))
        system = {
            "_rid": rid,
            "_self": f"{container.self_link}docs/{rid}/",
            "_etag": write_etag(version),
            "_attachments": "attachments/",
            "_ts": now,
        }
        body = write_exactly(own | system)
        if (size := len(body.encode())) > ITEM_BYTES_MAX:
            message = f"an item may have {ITEM_BYTES_MAX} bytes at most, not {size}"
            raise RequestRefused(413, message)
        check_nesting(own, body)
        # An item's own ttl counts only when the container has time to live switched on.
        ttl = -1 if container.default_ttl is None else own.get("ttl", container.default_ttl)
        expires = None if ttl == -1 else now + int(ttl)
        lsn = self._storage.take_lsn(*self._physical)
        self._storage.connection.execute(
            "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (version, *self._physical, lsn, self._key, item_id, number, now, expires, body),
        )
        indexed = container.policy.count_indexed(own)
        charge = charges.replace(size, indexed) if before else charges.insert(size, indexed)
        return ItemResult(200 if before else 201, charge, body, write_etag(version))


def check_tag(stored: StoredItem, if_match: str | None) -> None:
    if if_match is not None and if_match not in ("*", stored.etag):
        raise RequestRefused(412, f"the item's tag is {stored.etag}, not {if_match}")


def check_nesting(document: Any, text: str) -> None:
    """Raise a 400 for a document nested too deeply; `text` is its JSON.

    Most documents do not even have that many brackets, and are not walked.
    """
    if text.count("[") + text.count("{") <= LEVELS_MAX:
        return
    level: list[Any] = [document]
    for _ in range(LEVELS_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise BadRequest(f"a document may be nested {LEVELS_MAX} levels at most")


def write_etag(version: int) -> str:
    """Write the tag of a version; it is unlike all others, for the account has one sequence."""
    return f'"00000000-0000-0000-0000-{version:012x}"'

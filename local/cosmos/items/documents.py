"""Single items: read, create, replace, upsert, patch, delete; for a request and within a batch.

Nothing here opens a transaction: the caller does, around one operation or around a hundred.

Rules for the `id` of a resource.

How deep a document may be: 128 levels, by "Azure Cosmos DB service quotas".

The properties that the service writes into every item, beside the user's own.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from local.cosmos.answers import Refusal, compact, unsupported
from local.cosmos.items import charges
from local.cosmos.items.containers import (
    SYSTEM_PROPERTIES,
    Container,
    check_id,
    is_ttl,
    resource_id,
)
from local.cosmos.items.patch import Patch
from local.cosmos.items.storage import Storage

LEVELS_MAX = 128


def check_nesting(document: Any, text: str) -> None:
    """Raise a 400 Refusal for a document nested too deeply; `text` is its JSON.

    Most documents do not even have that many brackets, and are not walked.
    """
    if text.count("[") + text.count("{") <= LEVELS_MAX:
        return
    level = [document]
    for _ in range(LEVELS_MAX):
        level = [inner for outer in level for inner in children(outer)]
        if not level:
            return
    raise Refusal(400, f"a document may be nested {LEVELS_MAX} levels at most")


def children(value: dict[str, Any] | list[Any]) -> list[Any]:
    """The objects and arrays directly inside one."""
    inside = value.values() if isinstance(value, dict) else value
    return [inner for inner in inside if isinstance(inner, dict | list)]


def without_system_properties(document: dict[str, Any]) -> dict[str, Any]:
    """The user's part of a document."""
    return {name: value for name, value in document.items() if name not in SYSTEM_PROPERTIES}


def etag_of(version: int) -> str:
    """Tags differ for every version of every item, for the account has one sequence."""
    return f'"00000000-0000-0000-0000-{version:012x}"'


def body_of(
    container: Container, own: dict[str, Any], *, version: int, birth: int, now: int
) -> str:
    """The JSON text of a version: the user's part, then the system properties.

    Clients that merge a sorted query read the birth number of an item, lowest byte first, from the
    end of its resource id.
    """
    rid = resource_id(container.rid_bytes + birth.to_bytes(8, "little"))
    written = {
        "_rid": rid,
        "_self": f"{container.self_link}docs/{rid}/",
        "_etag": etag_of(version),
        "_attachments": "attachments/",
        "_ts": now,
    }
    return compact(own | written)


ITEM_BYTES_MAX = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """An item as it lies in the table; `body` is its JSON text, system properties included."""

    version: int
    birth: int
    body: str

    @property
    def etag(self) -> str:
        """The entity tag, quotes included."""
        return etag_of(self.version)


@dataclass(frozen=True, slots=True)
class Done:
    """What an operation on an item came to; `charge` is in request units."""

    status: int
    charge: float
    body: str = ""
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """One logical partition of a container; `key` is canonical."""

    container: Container
    key: str

    @property
    def physical(self) -> tuple[int, int]:
        """The physical partition it is in: the number of the container, and its own."""
        return self.container.number, self.container.ring.partition_of(self.key)


class Items:
    """Items by place and id. `now` is the account's clock in seconds since 1970."""

    def __init__(self, storage: Storage, now: Callable[[], float]) -> None:
        self._storage = storage
        self._now = now

    def read(self, place: Place, item_id: str, *, is_strong: bool = True) -> Done:
        """The item; a 404 Refusal when it does not exist."""
        stored = self._existing(place, item_id)
        charge = charges.read(len(stored.body.encode()), is_strong=is_strong)
        return Done(200, charge, stored.body, stored.etag)

    def create(self, place: Place, document: Any) -> Done:
        """A new item; a 409 Refusal when its id is taken in this partition."""
        item_id = self._checked(place, document)
        if self._find(place, item_id) is not None:
            raise Refusal(409, f"item {item_id!r} exists already in partition {place.key}")
        return self._write(place, item_id, document, None)

    def replace(self, place: Place, item_id: str, document: Any, if_match: str | None) -> Done:
        """A new version of an existing item; 404 when absent, 412 when its tag is another."""
        if self._checked(place, document) != item_id:
            raise Refusal(400, f"the document's id is not {item_id!r}, the id it would replace")
        stored = self._existing(place, item_id)
        check_tag(stored, if_match)
        return self._write(place, item_id, document, stored)

    def upsert(self, place: Place, document: Any, if_match: str | None) -> Done:
        """Create, or replace what is there; 412 when what is there has another tag.

        With If-Match on an absent item the service's behaviour is not documented: refused.
        """
        item_id = self._checked(place, document)
        stored = self._find(place, item_id)
        if stored is None and if_match is not None:
            raise unsupported("If-Match on an upsert that creates")
        if stored is not None:
            check_tag(stored, if_match)
        return self._write(place, item_id, document, stored)

    def patch(self, place: Place, item_id: str, patch: Patch, if_match: str | None) -> Done:
        """Change parts of an existing item.

        404 when absent, 412 when its tag is another or the patch's own condition does not hold, 400
        when a change cannot be made. It costs what a replace would.
        """
        patch.check_spares(place.container.key_path.names)
        stored = self._existing(place, item_id)
        check_tag(stored, if_match)
        document = json.loads(stored.body)
        patch.check_condition(document)
        patch.apply(document)
        self._checked(place, document)
        return self._write(place, item_id, document, stored)

    def delete(self, place: Place, item_id: str, if_match: str | None) -> Done:
        """Remove an item; 404 when absent, 412 when its tag is another."""
        stored = self._existing(place, item_id)
        check_tag(stored, if_match)
        self._storage.next_version()
        self._storage.next_lsn(*place.physical)
        self._storage.connection.execute("DELETE FROM items WHERE version = ?", (stored.version,))
        return Done(204, charges.delete(len(stored.body.encode())))

    def id_of(self, place: Place, birth: int) -> str:
        """The id of the item with a birth number; a 404 Refusal when it does not exist."""
        row = self._storage.connection.execute(
            "SELECT id FROM items WHERE container = ? AND partition = ? AND birth = ?",
            (place.container.number, place.key, birth),
        ).fetchone()
        if row is None:
            raise Refusal(404, f"no item of this resource id exists in partition {place.key}")
        return str(row[0])

    def purge(self) -> int:
        """Remove what has expired; the answer is how many items."""
        with self._storage.transaction():
            return self._storage.connection.execute(
                "DELETE FROM items WHERE expires IS NOT NULL AND expires <= ?", (int(self._now()),)
            ).rowcount

    def _existing(self, place: Place, item_id: str) -> Stored:
        stored = self._find(place, item_id)
        if stored is None:
            raise Refusal(404, f"no item with id {item_id!r} exists in partition {place.key}")
        return stored

    def _find(self, place: Place, item_id: str) -> Stored | None:
        row = self._storage.connection.execute(
            "SELECT version, birth, body FROM items"
            " WHERE container = ? AND partition = ? AND id = ?"
            " AND (expires IS NULL OR expires > ?)",
            (place.container.number, place.key, item_id, int(self._now())),
        ).fetchone()
        return Stored(*row) if row else None

    def _checked(self, place: Place, document: Any) -> str:
        if not isinstance(document, dict):
            raise Refusal(400, "an item must be a JSON object")
        item_id = check_id(document.get("id"))
        if place.container.key_path.of(document) != place.key:
            raise Refusal(
                400,
                "the partition key of the document differs from the one of the request",
                substatus=1001,
            )
        if "ttl" in document and not is_ttl(document["ttl"]):
            raise Refusal(400, "ttl must be -1 or a positive whole number")
        return item_id

    def _write(
        self, place: Place, item_id: str, document: dict[str, Any], before: Stored | None
    ) -> Done:
        version = self._storage.next_version()
        birth = before.birth if before else version
        now = int(self._now())
        own = without_system_properties(document)
        body = body_of(place.container, own, version=version, birth=birth, now=now)
        size = len(body.encode())
        if size > ITEM_BYTES_MAX:
            raise Refusal(413, f"an item may have {ITEM_BYTES_MAX} bytes at most, not {size}")
        check_nesting(own, body)
        indexed = place.container.policy.effects(own)
        self._storage.connection.execute(
            "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                version,
                *place.physical,
                self._storage.next_lsn(*place.physical),
                place.key,
                item_id,
                birth,
                now,
                expiry(place.container, own, now),
                body,
            ),
        )
        charge = charges.replace(size, indexed) if before else charges.insert(size, indexed)
        return Done(200 if before else 201, charge, body, etag_of(version))


def check_tag(stored: Stored, if_match: str | None) -> None:
    """Raise a 412 Refusal when a condition is given and does not hold."""
    if if_match is not None and if_match not in ("*", stored.etag):
        raise Refusal(412, f"the item's tag is {stored.etag}, not {if_match}")


def parse_item(text: str | bytes) -> Any:
    """Read a request body; a 400 Refusal when it is not JSON, to which NaN does not belong."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from error


def refuse_constant(name: str) -> None:
    """Raise a 400 Refusal for NaN and the infinities."""
    raise Refusal(400, f"the body is not JSON: {name}")


def expiry(container: Container, document: dict[str, Any], now: int) -> int | None:
    """The second in which a version expires; None for never. An item's ttl counts only when the
    container has time to live switched on."""
    if container.default_ttl is None:
        return None
    ttl = document.get("ttl", container.default_ttl)
    return None if ttl == -1 else now + int(ttl)

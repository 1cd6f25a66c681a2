"""A Container over SQLite: it shows that the port asks for nothing that only Cosmos DB has.

It reads no query's SQL, but narrows by what the query says beside it (a session, a range of ids,
whether a need is shown) and lets `matches` decide. docs/adr/0090 says why it is not shipped.
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from shared.domain.errors import TooLarge
from shared.ports import (
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    PatchDocument,
    Query,
    ReadDocument,
    ReplaceDocument,
    StoreClock,
    UpsertDocument,
    WriteResult,
)
from shared.storage.documents import TTL_FIELD, VERSION_FIELD, WRITTEN_FIELD, version_of
from shared.storage.limits import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX
from shared.storage.queries import shows_any_need
from shared.testkit.memory_store import apply_patch, stored_text

SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    version INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, id TEXT, body TEXT,
    written REAL, expires REAL, is_flagged INTEGER, UNIQUE (session, id));
CREATE INDEX IF NOT EXISTS flagged ON documents (session, id) WHERE is_flagged;
"""
DELETE = "DELETE FROM documents WHERE session = ? AND id = ?"
INSERT = """
INSERT INTO documents (session, id, body, written, expires, is_flagged)
VALUES (?, ?, ?, ?, ?, ?)
"""


class SqliteContainer:
    """See ports.Container: one file, which other processes may have open, too."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.executescript(SCHEMA)

    async def read(
        self,
        session: str,
        document_id: str,
        *,
        may_be_old: bool = False,
        clock: StoreClock | None = None,
    ) -> Document | None:
        tell_time(clock)
        return self.stored(session, document_id)

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        texts = [stored_text(operation) for operation in operations]
        size = sum(map(len, texts))
        if size > BATCH_BYTES_MAX or len(texts) > BATCH_OPERATIONS_MAX:
            raise TooLarge(f"a batch of {len(texts)} operations and {size} bytes")
        self.db.execute("BEGIN IMMEDIATE")
        version = ""
        try:
            for operation, text in zip(operations, texts, strict=True):
                done = self.perform(session, operation, text)
                if done is None:
                    self.db.execute("ROLLBACK")
                    return operation.refused, ""
                version = done or version
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        return WriteResult.CREATED, version

    async def find(self, query: Query, clock: StoreClock | None = None) -> list[Document]:
        tell_time(clock)
        found: list[Document] = []
        for document in self.ordered(query):
            if query.is_enough is not None and query.is_enough(found, document):
                break
            found.append(query.select(document))
            if len(found) == query.limit:
                break
        return found

    async def look(self) -> None:
        self.db.execute("SELECT 1 FROM documents LIMIT 1")

    def close(self) -> None:
        self.db.close()

    def ordered(self, query: Query) -> Iterator[Document]:
        """Yield all that matches in the order of the query; what has the same, as stored."""
        conditions, values = "id BETWEEN ? AND ?", list[object](query.ids)
        if query.session is not None:
            conditions, values = f"{conditions} AND session = ?", [*values, query.session]
        if query.is_flagged:
            conditions += " AND is_flagged"
        order = "id" if query.order == "id" else "version"
        if query.order == "id" and query.is_descending:
            order += " DESC"
        rows = self.db.execute(
            "SELECT body, version, written FROM documents"
            f" WHERE {conditions} AND expires > ? ORDER BY {order}",
            [*values, time.time()],
        )
        matching = (one for one in map(whole, rows) if query.matches(one))
        if query.order in ("", "id"):
            yield from matching
        else:
            yield from sorted(
                matching, key=lambda one: one[query.order], reverse=query.is_descending
            )

    def stored(self, session: str, document_id: str) -> Document | None:
        row = self.db.execute(
            "SELECT body, version, written FROM documents"
            " WHERE session = ? AND id = ? AND expires > ?",
            (session, document_id, time.time()),
        ).fetchone()
        return None if row is None else whole(row)

    def perform(self, session: str, operation: Operation, text: str) -> str | None:
        """Return the new version, nothing where none is made, and None if it is refused."""
        made: Document | None = json.loads(text) if text else None
        match operation:
            case CreateDocument(document):
                is_taken = self.stored(session, document["id"]) is None
            case UpsertDocument():
                is_taken = True
            case ReplaceDocument(document, version):
                is_taken = self.wanted(session, document["id"], version) is not None
            case PatchDocument(document_id, fields, version=of, unless_empty=filled):
                made = self.wanted(session, document_id, of)
                is_taken = made is not None and (filled is None or bool(made.get(filled)))
                if made is not None and is_taken:
                    apply_patch(made, fields)
            case DeleteDocument(document_id, version=of):
                is_taken = self.wanted(session, document_id, of) is not None
                if is_taken:
                    self.db.execute(DELETE, (session, document_id))
            case ReadDocument(document_id):
                is_taken = self.stored(session, document_id) is not None
        if not is_taken:
            return None
        return "" if made is None else self.put(session, made)

    def wanted(self, session: str, document_id: str, version: str | None) -> Document | None:
        there = self.stored(session, document_id)
        return there if there and version in (None, version_of(there)) else None

    def put(self, session: str, document: Document) -> str:
        now, ttl = time.time(), document.get(TTL_FIELD, -1)
        expires = now + ttl if ttl >= 0 else float("inf")
        own = {VERSION_FIELD, WRITTEN_FIELD}
        body = json.dumps({name: value for name, value in document.items() if name not in own})
        self.db.execute(DELETE, (session, document["id"]))
        values = (session, document["id"], body, now, expires, shows_any_need(document))
        return str(self.db.execute(INSERT, values).lastrowid)


def whole(row: tuple[str, int, float]) -> Document:
    body, version, written = row
    return {**json.loads(body), VERSION_FIELD: str(version), WRITTEN_FIELD: written}


def tell_time(clock: StoreClock | None) -> None:
    if clock is not None:
        clock.seconds = time.time()

"""A partitioned document store in a dictionary, with batches, versions and times to live."""

import asyncio
import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from shared.domain.errors import TooLarge
from shared.domain.handler import require_storable
from shared.ports import (
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    PatchDocument,
    Query,
    ReadDocument,
    ReplaceDocument,
    UpsertDocument,
    WriteResult,
)
from shared.storage.documents import (
    TTL_FIELD,
    VERSION_FIELD,
    WRITTEN_FIELD,
    version_of,
    written_at,
)
from shared.storage.limits import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX
from shared.storage.queries import head_query, shows_any_need

# Where the virtual calendar begins: some time in 2026.
EPOCH_SECONDS = 1_780_000_000.0


class VirtualClock:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def today(self) -> float:
        """Virtual seconds since 1970."""
        return EPOCH_SECONDS + self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


class MemoryStore:
    """Documents by session and id, as they would come back from the real store."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.partitions: dict[str, dict[str, Document]] = defaultdict(dict)
        # Ids in their order, and those of documents with a flag, as the real store indexes them.
        self.ids: dict[str, list[str]] = defaultdict(list)
        self.flags: dict[str, set[str]] = defaultdict(set)
        self.versions = 0

    def read(self, session: str, document_id: str) -> Document | None:
        """Return a document that has not outlived its time, or None."""
        document = self.partitions[session].get(document_id)
        return document if document and not self.is_over(document) else None

    def find(self, query: Query) -> list[Document]:
        """Return the first documents that a query finds; what has the same order, as stored."""
        found: list[Document] = []
        for document in self.ordered(query):
            if query.is_enough is not None and query.is_enough(found, document):
                break
            found.append(query.select(document))
            if len(found) == query.limit:
                break
        return found

    def ordered(self, query: Query) -> Iterator[Document]:
        """Yield all that matches in the order of the query."""
        sessions = list(self.partitions) if query.session is None else [query.session]
        candidates = (
            document
            for session in sessions
            for document_id in self.candidate_ids(session, query)
            if (document := self.read(session, document_id)) and query.matches(document)
        )
        if query.order == "id" and query.session is not None and not query.is_flagged:
            yield from candidates
            return
        found = sorted(candidates, key=lambda document: int(version_of(document)))
        if query.order:
            found.sort(key=lambda document: document[query.order], reverse=query.is_descending)
        yield from found

    def candidate_ids(self, session: str, query: Query) -> Iterator[str]:
        """Yield the ids that a query has to look at: those of flags, or a range in its order."""
        if query.is_flagged:
            yield from list(self.flags[session])
            return
        ids, (lowest, highest) = self.ids[session], query.ids
        places = range(bisect_left(ids, lowest), bisect_right(ids, highest))
        yield from (ids[place] for place in (places[::-1] if query.is_descending else places))

    def flagged(self, session: str) -> list[Document]:
        """Return every document of a session that carries a flag, in the order of storing."""
        found = (self.read(session, document_id) for document_id in self.flags[session])
        return sorted((d for d in found if d), key=lambda document: int(version_of(document)))

    def newest(self, session: str) -> Document | None:
        return next(self.ordered(head_query(session)), None)

    def is_over(self, document: Document) -> bool:
        ttl = document.get(TTL_FIELD, -1)
        return bool(ttl >= 0 and self.clock.now() >= written_at(document) + ttl)

    def apply(self, session: str, operations: Sequence[Operation]) -> WriteResult:
        """A transactional batch: all of it, or the meaning of its first refusal.

        Raises TooLarge.
        """
        texts = [stored_text(operation) for operation in operations]
        size = sum(map(len, texts))
        if size > BATCH_BYTES_MAX or len(texts) > BATCH_OPERATIONS_MAX:
            raise TooLarge(f"a batch of {len(texts)} operations and {size} bytes")
        for operation in operations:
            if not self.is_possible(session, operation):
                return operation.refused
        for operation, text in zip(operations, texts, strict=True):
            self.perform(session, operation, text)
        return WriteResult.CREATED

    def is_possible(self, session: str, operation: Operation) -> bool:
        match operation:
            case UpsertDocument():
                return True
            case CreateDocument(document):
                return self.read(session, document["id"]) is None
            case ReadDocument(document_id):
                return self.is_there(session, document_id)
            case ReplaceDocument(document, version):
                return self.is_there(session, document["id"], version)
            case PatchDocument(document_id, version=of, unless_empty=filled):
                stored = self.read(session, document_id)
                is_filled = filled is None or bool(stored and stored.get(filled))
                return is_filled and self.is_there(session, document_id, of)
            case DeleteDocument(document_id, version=of):
                return self.is_there(session, document_id, of)

    def is_there(self, session: str, document_id: str, version: str | None = None) -> bool:
        stored = self.read(session, document_id)
        return stored is not None and version in (None, version_of(stored))

    def perform(self, session: str, operation: Operation, text: str) -> None:
        match operation:
            case CreateDocument() | UpsertDocument() | ReplaceDocument():
                self.put(session, json.loads(text))
            case PatchDocument(document_id, fields):
                document = deepcopy(self.partitions[session][document_id])
                apply_patch(document, fields)
                self.put(session, document)
            case DeleteDocument(document_id):
                del self.partitions[session][document_id]
                self.ids[session].remove(document_id)
                self.flags[session].discard(document_id)
            case ReadDocument():
                pass

    def put(self, session: str, stored: Document) -> None:
        self.versions += 1
        stored |= {VERSION_FIELD: str(self.versions), WRITTEN_FIELD: self.clock.now()}
        document_id, ids = stored["id"], self.ids[session]
        self.partitions[session][document_id] = stored
        place = bisect_left(ids, document_id)
        if ids[place : place + 1] != [document_id]:
            ids.insert(place, document_id)
        if shows_any_need(stored):
            self.flags[session].add(document_id)
        else:
            self.flags[session].discard(document_id)


def stored_text(operation: Operation) -> str:
    """Return the text that an operation stores, as the SDK would write it, or none."""
    if isinstance(operation, CreateDocument | UpsertDocument | ReplaceDocument):
        require_storable(operation.document)
        return json.dumps(operation.document)
    return ""


def apply_patch(document: Document, fields: Mapping[str, Any]) -> None:
    """Set what paths such as /outbox/regions name; all but a path's last part must be there."""
    for path, value in fields.items():
        *parents, last = path.strip("/").split("/")
        parent = document
        for name in parents:
            parent = parent[name]
        parent[last] = value

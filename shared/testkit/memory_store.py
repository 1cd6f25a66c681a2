"""A partitioned document store in a dictionary, with batches, versions and times to live."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy

from shared.domain.errors import TooLarge
from shared.domain.handler import require_storable
from shared.ports import SessionNeed, WriteResult
from shared.storage.documents import (
    TTL_FIELD,
    VERSION_FIELD,
    WRITTEN_FIELD,
    Document,
    is_entry,
    version_of,
    written_at,
)
from shared.storage.limits import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX
from shared.storage.operations import (
    CreateDocument,
    DeleteDocument,
    Operation,
    PatchDocument,
    ReadDocument,
    ReplaceDocument,
    UpsertDocument,
    apply_patch,
)
from shared.storage.queries import is_pending_partly, shows_any_need, shows_need

# Where the virtual calendar begins: some time in 2026.
EPOCH_SECONDS = 1_780_000_000.0


class VirtualClock:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.seconds

    def today(self) -> float:
        """Virtual seconds since 1970."""
        return EPOCH_SECONDS + self.seconds

    async def sleep(self, seconds: float) -> None:
        """Advance the clock and let others run."""
        self.seconds += seconds
        await asyncio.sleep(0)


class MemoryStore:
    """Documents by session and id, as they would come back from the real store."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.partitions: dict[str, dict[str, Document]] = defaultdict(dict)
        # The flags and the ends of the journals are indexed, as they are in the real store.
        self.flags: dict[str, set[str]] = defaultdict(set)
        self.ends: dict[str, str] = {}
        self.versions = 0

    def read(self, session: str, document_id: str) -> Document | None:
        """A document that has not outlived its time, or None."""
        document = self.partitions[session].get(document_id)
        return document if document and not self.is_over(document) else None

    def flagged(self, session: str) -> list[Document]:
        """Every document of a session that carries a flag, in the order of storing."""
        found = (self.read(session, document_id) for document_id in self.flags[session])
        return sorted((d for d in found if d), key=lambda document: int(version_of(document)))

    def newest(self, session: str) -> Document | None:
        end = self.ends.get(session)
        return self.partitions[session].get(end) if end else None

    def is_over(self, document: Document) -> bool:
        ttl = document.get(TTL_FIELD, -1)
        return bool(ttl >= 0 and self.clock.now() >= written_at(document) + ttl)

    def search(
        self,
        need: SessionNeed,
        place: str,
        before: float,
        of_regions: int,
        excluded: frozenset[str],
    ) -> list[Document]:
        """The documents that show a need, the oldest first: see Maintenance.sessions."""
        sessions = [session for session in self.flags if session not in excluded]
        documents = [d for session in sessions for d in self.flagged(session)]
        found = [
            document
            for document in documents
            if (written_at(document) <= before or is_pending_partly(document, of_regions))
            and shows_need(document, need, place)
        ]
        return sorted(found, key=lambda document: (written_at(document), int(version_of(document))))

    def apply(self, session: str, operations: Sequence[Operation]) -> WriteResult:
        """A transactional batch: all of it, or the meaning of its first refusal."""
        texts = [text_of(operation) for operation in operations]
        require_small(texts)
        for operation in operations:
            if not self.is_possible(session, operation):
                return operation.refused
        for operation, text in zip(operations, texts, strict=True):
            self.perform(session, operation, text)
        return WriteResult.CREATED

    def is_possible(self, session: str, operation: Operation) -> bool:
        """Whether the store takes an operation."""
        match operation:
            case UpsertDocument():
                return True
            case CreateDocument(document):
                return self.read(session, document["id"]) is None
            case ReplaceDocument(document, version):
                return self.is_version(session, document["id"], version)
            case DeleteDocument(document_id, _, str() as version) | PatchDocument(
                document_id, _, _, str() as version
            ):
                return self.is_version(session, document_id, version)
            case (
                ReadDocument(document_id) | PatchDocument(document_id) | DeleteDocument(document_id)
            ):
                return self.read(session, document_id) is not None

    def is_version(self, session: str, document_id: str, version: str) -> bool:
        stored = self.read(session, document_id)
        return stored is not None and version_of(stored) == version

    def perform(self, session: str, operation: Operation, text: str) -> None:
        """Do what was found possible."""
        match operation:
            case CreateDocument() | UpsertDocument() | ReplaceDocument():
                self.put(session, json.loads(text))
            case PatchDocument(document_id, fields):
                document = deepcopy(self.partitions[session][document_id])
                apply_patch(document, fields)
                self.put(session, document)
            case DeleteDocument(document_id):
                del self.partitions[session][document_id]
                self.flags[session].discard(document_id)
            case ReadDocument():
                pass

    def put(self, session: str, stored: Document) -> None:
        """Store a document of its own."""
        self.versions += 1
        stored |= {VERSION_FIELD: str(self.versions), WRITTEN_FIELD: self.clock.now()}
        document_id = stored["id"]
        self.partitions[session][document_id] = stored
        if shows_any_need(stored):
            self.flags[session].add(document_id)
        else:
            self.flags[session].discard(document_id)
        if is_entry(stored):
            self.ends[session] = max(document_id, self.ends.get(session, ""))


def text_of(operation: Operation) -> str:
    """What an operation stores, as the SDK would write it; nothing where it stores nothing."""
    if isinstance(operation, CreateDocument | UpsertDocument | ReplaceDocument):
        require_storable(operation.document)
        return json.dumps(operation.document)
    return ""


def require_small(texts: Sequence[str]) -> None:
    """Raise TooLarge for what no transactional batch takes."""
    size = sum(len(text) for text in texts)
    if size > BATCH_BYTES_MAX or len(texts) > BATCH_OPERATIONS_MAX:
        raise TooLarge(f"a batch of {len(texts)} operations and {size} bytes")

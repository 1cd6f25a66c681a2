"""A partitioned document store in a dictionary, with batches, versions and times to live."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy

from shared.domain.batch import (
    Appended,
    Create,
    Delete,
    Operation,
    Patch,
    Read,
    Replace,
    Upsert,
)
from shared.domain.errors import TooLarge
from shared.domain.stored_messages import Document
from shared.ports import Sought

# What Cosmos DB takes in one transactional batch.
BATCH_BYTES_MAX = 2 * 1024 * 1024
BATCH_OPERATIONS_MAX = 100
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
        return sorted((d for d in found if d), key=lambda document: int(document["_etag"]))

    def newest(self, session: str) -> Document | None:
        """The entry with the highest position."""
        end = self.ends.get(session)
        return self.partitions[session].get(end) if end else None

    def is_over(self, document: Document) -> bool:
        """Whether the document has outlived its time to live."""
        ttl = document.get("ttl", -1)
        return bool(ttl >= 0 and self.clock.now() >= document["_ts"] + ttl)

    def sought(
        self, sought: Sought, region: str, before: float, but_for: frozenset[str]
    ) -> list[Document]:
        """The documents that carry a flag, the oldest first."""
        sessions = [session for session in self.flags if session not in but_for]
        documents = [d for session in sessions for d in self.flagged(session)]
        found = [d for d in documents if d["_ts"] <= before and is_sought(d, sought, region)]
        return sorted(found, key=lambda document: (document["_ts"], int(document["_etag"])))

    def apply(self, session: str, operations: Sequence[Operation]) -> Appended:
        """A transactional batch: all of it, or the meaning of its first refusal."""
        texts = [text_of(operation) for operation in operations]
        require_small(texts)
        for operation in operations:
            if not self.is_possible(session, operation):
                return operation.refused
        for operation, text in zip(operations, texts, strict=True):
            self.perform(session, operation, text)
        return Appended.CREATED

    def is_possible(self, session: str, operation: Operation) -> bool:
        """Whether the store takes an operation."""
        match operation:
            case Upsert():
                return True
            case Create(document):
                return self.read(session, document["id"]) is None
            case Replace(document, version):
                return self.is_version(session, document["id"], version)
            case Delete(document_id, _, str() as version):
                return self.is_version(session, document_id, version)
            case Read(document_id) | Patch(document_id) | Delete(document_id):
                return self.read(session, document_id) is not None

    def is_version(self, session: str, document_id: str, version: str) -> bool:
        """Whether a document is there in this very version."""
        stored = self.read(session, document_id)
        return stored is not None and stored["_etag"] == version

    def perform(self, session: str, operation: Operation, text: str) -> None:
        """Do what was found possible."""
        match operation:
            case Create() | Upsert() | Replace():
                self.put(session, json.loads(text))
            case Patch(document_id, fields):
                document = deepcopy(self.partitions[session][document_id])
                for path, value in fields.items():
                    set_field(document, path, value)
                self.put(session, document)
            case Delete(document_id):
                del self.partitions[session][document_id]
                self.flags[session].discard(document_id)
            case Read():
                pass

    def put(self, session: str, stored: Document) -> None:
        """Store a document of its own."""
        self.versions += 1
        stored |= {"_etag": str(self.versions), "_ts": self.clock.now()}
        document_id = stored["id"]
        self.partitions[session][document_id] = stored
        if any(stored.get(sought.value) for sought in Sought):
            self.flags[session].add(document_id)
        else:
            self.flags[session].discard(document_id)
        if stored["kind"] == "entry":
            self.ends[session] = max(document_id, self.ends.get(session, ""))


def text_of(operation: Operation) -> str:
    """What an operation stores, as the SDK would write it; nothing where it stores nothing."""
    if isinstance(operation, Create | Upsert | Replace):
        return json.dumps(operation.document)
    return ""


def require_small(texts: Sequence[str]) -> None:
    """Raise TooLarge for what no transactional batch takes."""
    size = sum(len(text) for text in texts)
    if size > BATCH_BYTES_MAX or len(texts) > BATCH_OPERATIONS_MAX:
        raise TooLarge(f"a batch of {len(texts)} operations and {size} bytes")


def set_field(document: Document, path: str, value: object) -> None:
    """Set what a path such as /outbox/regions names; all but its last part must be there."""
    *parents, last = path.strip("/").split("/")
    for name in parents:
        document = document[name]
    document[last] = value


def is_sought(document: Document, sought: Sought, region: str) -> bool:
    """Whether a document carries the flag; an outbox must owe the region."""
    flag = document.get(sought.value)
    return region in (flag or ()) if sought is Sought.OWING else bool(flag)

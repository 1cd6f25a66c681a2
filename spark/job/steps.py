"""The steps of a manifest as documents in the journal's account: an id is given to one feed.

They are what the steps of other manifests are as files (files.py): texts at places like those of
files in folders. A manifest has a partition of its own, whose name no session can have, in the
container of the ledgers, or in that of the journals if there is none. Sweep, compaction, change
feed and reconciliation pass over these documents.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256, sha512
from itertools import batched
from typing import Protocol

from shared.adapters.cosmos import CosmosAccount, CosmosContainer
from shared.adapters.monotonic import MonotonicClock
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.ports import (
    Clock,
    Container,
    CreateDocument,
    DeleteDocument,
    Document,
    Query,
    UpsertDocument,
    WriteResult,
)
from shared.settings import connection, names, read_ledgers, read_number, read_text
from shared.storage.documents import TTL_FIELD
from shared.storage.limits import BATCH_OPERATIONS_MAX
from spark.job.failures import JobRefused

# Before the path of a manifest this says that its steps are in the account.
IN_ACCOUNT = "cosmos+"
RUN = re.compile(r"run=(\d+)")
# A document may have two megabytes, and a character six bytes in it.
PIECE_CHARACTERS = 300_000
FOUND_MAX = 1_000_000
# For so long an account is asked again that takes nothing, or does not answer.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.5, 8.0

type OpenContainer = Callable[[], AbstractAsyncContextManager[Container]]


def is_in_account(manifest: str | None) -> bool:
    """Say whether the steps of a manifest are in the account, by its path."""
    return manifest is not None and manifest.startswith(IN_ACCOUNT)


class Steps(Protocol):
    """Texts at places that are named like files in folders."""

    def create(self, place: str, text: str) -> bool:
        """Put a text at a place that is free; it is there completely or not at all.

        Returns whether the place holds this text now: False, and nothing is changed, if another
        writer has put another one there. Asking again after a lost answer is safe.
        """

    def list_names(self, place: str, after_run: int = 0) -> list[str]:
        """The names in a folder; those of runs up to `after_run` may be left out."""

    def read_text(self, place: str) -> str: ...

    def read_texts(self, folders: Sequence[str]) -> list[str]:
        """All texts in these folders, which follow each other: those of runs, the lowest first."""

    def remove(self, place: str) -> None:
        """Remove a text, or a folder with all that is in it; nothing happens if it is not there."""


@dataclass(frozen=True, slots=True)
class AccountSteps:
    """See Steps: the places below `root` are documents of the manifest `name`.

    `account` says in which container, for people. Raises JobRefused if the account refuses, or has
    not answered for PATIENCE_SECONDS.
    """

    open: OpenContainer = field(repr=False)
    account: str
    name: str
    root: str
    clock: Clock = field(default_factory=MonotonicClock)

    @classmethod
    def of(cls, settings: Mapping[str, str], name: str, root: str) -> "AccountSteps":
        """Steps in the account of the app settings; raises InvalidSettings if they name none."""
        address = connection(settings, "Cosmos", "accountEndpoint")
        database = read_text(settings, "LOCKSTEP_DATABASE")
        container = read_ledgers(settings) or read_text(settings, "LOCKSTEP_JOURNAL")
        seconds = read_number(settings, "LOCKSTEP_JOURNAL_CALL_SECONDS", least=1, most=60)
        locations = names(settings, "LOCKSTEP_COSMOS_LOCATIONS")

        @asynccontextmanager
        async def opened() -> AsyncIterator[Container]:
            account = CosmosAccount(**asdict(address), call_seconds=seconds, locations=locations)
            try:
                yield CosmosContainer(account, database, container)
            finally:
                await account.close()

        return cls(opened, f"{address.host}/{database}/{container}", name, root)

    @property
    def partition(self) -> str:
        # It is longer than any session's name.
        return f"$feed-{sha512(self.name.encode()).hexdigest()}"

    def create(self, place: str, text: str, keep_seconds: int | None = None) -> bool:
        """See Steps; after `keep_seconds` the store removes it."""
        document_id = self.identify(place)
        first, *others = list(batched(text, PIECE_CHARACTERS, strict=False)) or [()]
        document = self.build_document(document_id, first)
        start = f"pieces:{document_id}:{sha256(text.encode()).hexdigest()}"
        ids = (f"{start}:{n:06d}" for n in range(len(others)))
        pieces = list(map(self.build_document, ids, others))
        if pieces:
            document["pieces"] = start
        if keep_seconds is not None:
            document[TTL_FIELD] = keep_seconds

        async def write(container: Container) -> bool:
            # Nobody reads these before the document that names them is there.
            for piece in pieces:
                await container.write(self.partition, [UpsertDocument(piece)])
            created = CreateDocument(document, WriteResult.TAKEN)
            result, _ = await container.write(self.partition, [created])
            if result is WriteResult.CREATED:
                return True
            # It may be our own, whose answer was lost.
            found = await container.read(self.partition, document_id)
            return found is not None and all(found.get(key) == document[key] for key in document)

        return self.perform(write)

    def list_names(self, place: str, after_run: int = 0) -> list[str]:
        """See Steps: one query."""
        start = f"{self.identify(place)}:"
        first = f"{start}run={after_run + 1:09d}" if after_run else start
        found = self.find("SELECT c.id FROM c", first, f"{start[:-1]};")
        return sorted({each["id"].removeprefix(start).partition(":")[0] for each in found})

    def read_text(self, place: str) -> str:
        """See Steps. Raises JobRefused if there is nothing."""
        document_id = self.identify(place)
        document = self.perform(lambda container: container.read(self.partition, document_id))
        if document is None:
            raise JobRefused(f"{self.account} has lost {place}")
        return self.join(document)

    def read_texts(self, folders: Sequence[str]) -> list[str]:
        """See Steps: one query."""
        if not folders:
            return []
        first, last = (self.identify(folder) for folder in (folders[0], folders[-1]))
        return [self.join(found) for found in self.find("SELECT * FROM c", first, f"{last};")]

    def remove(self, place: str) -> None:
        """See Steps."""
        found_at = self.identify(place)
        for start in (found_at, f"pieces:{found_at}"):
            while found := self.find("SELECT c.id FROM c", start, f"{start};"):
                ids = [each["id"] for each in found[:BATCH_OPERATIONS_MAX]]
                self.perform(partial(self.delete, ids))

    async def delete(self, ids: Sequence[str], container: Container) -> None:
        # Another feed may delete the same, which refuses the batch.
        deleted = [DeleteDocument(each, WriteResult.TAKEN) for each in ids]
        await container.write(self.partition, deleted)

    def join(self, document: Document) -> str:
        """The text of a document, with its pieces if it names any."""
        start = document.get("pieces")
        pieces = self.find("SELECT * FROM c", f"{start}:", f"{start};") if start else []
        return "".join(each["text"] for each in (document, *pieces))

    def find(self, sql: str, first: str, end: str) -> list[Document]:
        """The documents with ids from the first one on and below the end, in their order."""
        sql += " WHERE c.id >= @from AND c.id < @to ORDER BY c.id"
        named = {"@from": first, "@to": end}
        query = Query(
            sql,
            FOUND_MAX,
            parameters=named,
            session=self.partition,
            order="id",
            ids=(first, end),
        )
        return self.perform(lambda container: container.find(query))

    def identify(self, place: str) -> str:
        """A place as an id of a document. Ids have no slashes, and runs are sorted by number."""
        name = place.removeprefix(f"{self.root}/").replace("/", ":")
        return RUN.sub(lambda found: f"run={int(found[1]):09d}", name)

    def build_document(self, document_id: str, text: Sequence[str]) -> Document:
        owner = {"session": self.partition, "kind": "feed-step", "manifest": self.name}
        return {"id": document_id, **owner, "text": "".join(text)}

    def perform[T](self, work: Callable[[Container], Awaitable[T]]) -> T:
        """Do some work with the container, again for a while if it is unavailable."""

        async def opened() -> T:
            async with self.open() as container:
                return await self.persist(partial(work, container))

        # A notebook's own thread has an event loop already.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, opened()).result()

    async def persist[T](self, call: Callable[[], Awaitable[T]]) -> T:
        ends_at, pause = self.clock.now() + PATIENCE_SECONDS, PAUSE_SECONDS
        while True:
            try:
                return await call()
            except (Unavailable, OutcomeUnknown) as error:
                if not error.is_transient:
                    raise JobRefused(f"{self.account} takes no steps: {error}") from None
                if self.clock.now() >= ends_at:
                    raise JobRefused(
                        f"{self.account}, which has the steps of {self.name}, cannot be reached "
                        f"since {PATIENCE_SECONDS:.0f} s: {error}; what was sent stays sent, run "
                        "it again"
                    ) from None
                asked = getattr(error, "retry_after_seconds", None) or 0.0
                await self.clock.sleep(max(pause, asked))
                pause = min(2 * pause, PAUSE_SECONDS_MAX)

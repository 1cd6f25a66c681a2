"""The documents of bulk decisions: all in one partition, each for a month.

A second document is there while a decision runs, so that a sweep finds it without a look at those
that have ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from shared.domain.bulk import BulkDecision, BulkMember, BulkOutcome, BulkState, MemberOutcome
from shared.domain.standstill import ListPlace, StandstillKind
from shared.ports import (
    Container,
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    Query,
    ReplaceDocument,
    StoreClock,
    WriteResult,
)
from shared.storage.documents import version_of

# A session may well have this name: no other document has these ids.
BULK_SESSION = "$decisions"
BULK_PREFIX, RUNNING_PREFIX = "bulk-", "running-"
KEPT_SECONDS = 30 * 24 * 3600
# What runs at the same time is found at once.
RUNNING_MAX = 100
# The fields that are stored as they are.
PLAIN = ("action", "who", "why", "to", "queue", "about", "begun_at", "cancelled", "worker", "until")


class BulkStore:
    """Bulk decisions in the journal's container. Each method is one call of the store."""

    def __init__(self, container: Container) -> None:
        self.container = container

    async def create(self, decision: BulkDecision) -> None:
        """Store a decision that has begun, unless it is stored: one batch."""
        running = {"id": RUNNING_PREFIX + decision.id, "session": BULK_SESSION, "kind": "running"}
        operations = [
            CreateDocument(document, WriteResult.TAKEN)
            for document in (encode_bulk(decision), running)
        ]
        await self.container.write(BULK_SESSION, operations)

    async def read(self, decision_id: str) -> tuple[BulkDecision, str, float] | None:
        """Return a decision, its version, and the time on the store's clock; None for none."""
        clock = StoreClock()
        found = await self.container.read(BULK_SESSION, BULK_PREFIX + decision_id, clock=clock)
        return (decode_bulk(found), version_of(found), clock.seconds) if found else None

    async def save(self, decision: BulkDecision, version: str, *, ends: bool = False) -> str | None:
        """Replace a decision that is still of this version: its new version, or None.

        One that `ends` runs no more, from now on.
        """
        replaced = ReplaceDocument(encode_bulk(decision), version, WriteResult.TAKEN)
        operations: list[Operation] = [replaced]
        if ends:
            # The last one, so that the version answered is the decision's.
            gone = DeleteDocument(RUNNING_PREFIX + decision.id, WriteResult.ORPHANED)
            operations = [gone, replaced]
        result, saved = await self.container.write(BULK_SESSION, operations)
        return saved if result is WriteResult.CREATED else None

    async def running(self) -> Sequence[str]:
        """Return the ids of the decisions that run: one query, which mostly finds nothing."""
        found = await self.container.find(list_query(RUNNING_PREFIX, RUNNING_MAX, "c.id"))
        return [str(one["id"]).removeprefix(RUNNING_PREFIX) for one in found]

    async def newest(self, limit: int) -> Sequence[BulkDecision]:
        """Return those that changed last, the newest first: one query."""
        found = await self.container.find(list_query(BULK_PREFIX, limit, "*"))
        return [decode_bulk(one) for one in found]


def list_query(prefix: str, limit: int, fields: str) -> Query:
    """Return the query for the documents of this partition whose ids begin with a prefix."""
    lowest, highest = prefix, prefix + "~"
    return Query(
        f"SELECT {fields} FROM c WHERE c.id >= @from AND c.id <= @to ORDER BY c._ts DESC",  # noqa: S608 - from our own names
        limit,
        parameters={"@from": lowest, "@to": highest},
        session=BULK_SESSION,
        order="_ts",
        is_descending=True,
        ids=(lowest, highest),
    )


def encode_bulk(decision: BulkDecision) -> Document:
    named = {"id": BULK_PREFIX + decision.id, "session": BULK_SESSION, "kind": "bulk"}
    said = asdict(decision)
    # The names of a document's own fields.
    said["of"] = said.pop("kind")
    del said["id"]
    return {**named, **said, "ttl": KEPT_SECONDS}


def decode_bulk(document: Mapping[str, Any]) -> BulkDecision:
    after, causes, kind = document["after"], document["causes"], document["of"]
    return BulkDecision(
        id=str(document["id"]).removeprefix(BULK_PREFIX),
        kind=StandstillKind(kind) if kind else None,
        causes=None if causes is None else tuple(causes),
        after=ListPlace(**after) if after else None,
        members=tuple(BulkMember(**one) for one in document["members"]),
        later=tuple(BulkMember(**one) for one in document["later"]),
        state=BulkState(document["state"]),
        counts={BulkOutcome(name): count for name, count in document["counts"].items()},
        shown=tuple(
            MemberOutcome(one["session"], BulkOutcome(one["outcome"]), one["text"])
            for one in document["shown"]
        ),
        **{name: document[name] for name in PLAIN},
    )

"""A lease on one range of a change feed: who reads it, and up to where it was read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease document, in the shape the change feed processor of .NET keeps."""

    id: str
    token: str
    feed_range: Mapping[str, Any]
    owner: str | None
    continuation: str | None
    renewed: datetime
    etag: str = ""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Lease":
        """Read a document; a missing field raises KeyError."""
        return cls(
            document["id"],
            document["LeaseToken"],
            document["FeedRange"],
            document["Owner"],
            document["ContinuationToken"],
            datetime.fromisoformat(document["timestamp"]),
            document["_etag"],
        )

    def document(self) -> dict[str, Any]:
        """The document to write."""
        return {
            "id": self.id,
            "version": 1,
            "LeaseToken": self.token,
            "FeedRange": dict(self.feed_range),
            "Owner": self.owner,
            "ContinuationToken": self.continuation,
            "properties": {},
            "timestamp": self.renewed.isoformat(),
            "Mode": "Latest Version Feed",
        }

    def held_by(self, owner: str | None) -> "Lease":
        """The lease with another owner, renewed now."""
        return replace(self, owner=owner, renewed=datetime.now(UTC))

    def read_up_to(self, continuation: str) -> "Lease":
        """The lease advanced, and renewed by that."""
        return replace(self, continuation=continuation, renewed=datetime.now(UTC))

    def is_free(self, now: datetime, expiration_seconds: float) -> bool:
        """Whether nobody owns it, or its owner has not renewed it in time."""
        return self.owner is None or (now - self.renewed).total_seconds() > expiration_seconds

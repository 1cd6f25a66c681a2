"""The stored format of what producers keep: their ledgers, and the keys that they remember."""

from collections.abc import Mapping
from typing import Any

from shared.domain.errors import Misconfigured
from shared.domain.message import derive_id
from shared.domain.outbox import Outbox
from shared.domain.producer import NO_KEYS, BoundNumber, KeptKeys, Ledger
from shared.ports import (
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    ReplaceDocument,
    WriteResult,
)
from shared.storage.documents import OF_OLD_RELEASE, TTL_FIELD, encode_pending


def ledger_id(group: str) -> str:
    """The document id of a producer group's ledger; a group may hold characters ids may not."""
    return f"ledger-{derive_id(group)}"


def key_id(group: str, message_id: str) -> str:
    """The document id of a remembered key: the id under which a group sent a message."""
    return f"key-{derive_id(group, message_id)}"


def encode_ledger(session: str, ledger: Ledger) -> Document:
    document: Document = {
        "id": ledger_id(ledger.group),
        "session": session,
        "kind": "ledger",
        "group": ledger.group,
        "level": ledger.level,
        "next": ledger.next,
        "began": ledger.began,
        "remembered": [[b.id, b.digest, b.sequence] for b in ledger.remembered],
    }
    return document | ({"ended": True} if ledger.is_ended else {})


def decode_ledger(document: Mapping[str, Any]) -> Ledger:
    if "began" not in document:
        raise Misconfigured(OF_OLD_RELEASE)
    return Ledger(
        group=document["group"],
        level=document["level"],
        next=document["next"],
        began=document["began"],
        remembered=tuple(BoundNumber(*bound) for bound in document["remembered"]),
        is_ended=document.get("ended", False),
    )


def encode_key(session: str, group: str, bound: BoundNumber, keep_seconds: int) -> Document:
    """A remembered key; the store removes it after its time."""
    return {
        "id": key_id(group, bound.id),
        "session": session,
        "kind": "key",
        "bound": [bound.id, bound.digest, bound.sequence],
        TTL_FIELD: keep_seconds,
    }


def decode_key(document: Mapping[str, Any]) -> BoundNumber:
    """The number that a key is bound to; none where its document is the marker of an asked one.

    Both are one document, so that a key that comes by both ways at once is taken by one of them.
    """
    if "bound" in document:
        return BoundNumber(*document["bound"])
    return BoundNumber(document["covered"]["id"], document["covered"]["digest"], None)


def ledger_operations(
    session: str,
    ledger: Ledger,
    version: str | None,
    pending: Outbox,
    keys: KeptKeys = NO_KEYS,
) -> list[Operation]:
    """The batch that stores a ledger, the messages of its newest numbers, and their keys.

    The ledger is its last operation. A key that is there already refuses all of it.
    """
    created = [encode_key(session, ledger.group, bound, keys.seconds) for bound in keys.kept]
    if pending.regions:
        created.append(encode_pending(session, pending))
    operations: list[Operation] = [CreateDocument(one, WriteResult.TAKEN) for one in created]
    operations += [
        DeleteDocument(key_id(ledger.group, forgotten), WriteResult.TAKEN)
        for forgotten in keys.forgotten
    ]
    document = encode_ledger(session, ledger)
    if version is None:
        return [*operations, CreateDocument(document, WriteResult.TAKEN)]
    return [*operations, ReplaceDocument(document, version, WriteResult.TAKEN)]

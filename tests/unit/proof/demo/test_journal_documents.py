"""Documents as the journal stores them, read without the engine."""

from typing import Any

import pytest

from proof.demo.checker import (
    AppliedMessage,
    HeldMessage,
    StoredEntry,
    StoredJournal,
    StoredStatus,
    name_pending,
    read_entry,
)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "id": "000000000012",
        "session": "N14228",
        "kind": "entry",
        "status": "completed",
        "identities": [
            {"id": "a1", "type": "flight.status", "digest": "d1", "group": "flights", "level": 0}
            | {"sequence": 12}
        ],
        "state": {"events": 13, "status": "arrived", "airport": "IAH"},
        "attempt": "host/1",
        "owner": {"region": "west", "instance": "host"},
        "_ts": 1_700_000_000,
    } | changes


def test_an_entry_is_read_with_its_place_its_messages_and_its_maker() -> None:
    assert read_entry(document()) == StoredEntry(
        session="N14228",
        position=12,
        status=StoredStatus.COMPLETED,
        covers=(AppliedMessage("a1", 12, "d1"),),
        events=13,
        region="west",
        at=1_700_000_000,
    )


def test_an_entry_may_have_no_state_and_must_have_a_known_status() -> None:
    assert read_entry(document(status="faulted", state=None)).events is None
    with pytest.raises(ValueError, match="thinking"):
        read_entry(document(status="thinking"))


@pytest.mark.parametrize(
    ("changes", "pending"),
    [
        ({}, None),
        ({"pending": ["east"]}, "N14228/000000000012"),
        ({"blocked": ["east", "east/out"]}, "N14228/000000000012"),
        ({"kind": "pending", "id": "owed-7"}, "N14228/owed-7"),
        ({"kind": "genesis", "id": "genesis"}, None),
    ],
)
def test_a_document_with_something_to_deliver_is_named(
    changes: dict[str, Any], pending: str | None
) -> None:
    assert name_pending(document(**changes)) == pending


def test_what_is_parked_and_what_is_to_be_delivered_is_known_by_its_messages() -> None:
    said = {"id": "b2", "session": "N24211"}
    outbox = {"outbox": {"batches": [{"queue": "lockstep", "messages": [said]}]}}
    found = StoredJournal.of(
        [
            document(kind="parked", id="parked-7", message={"id": "a2", "session": "N14228"}),
            document(kind="pending", id="owed-7", pending=["east"], **outbox),
            document(**outbox),
            document(kind="waiting", id="waiting", waiting=True),
        ]
    )

    assert [entry.position for entry in found.entries] == [12]
    assert found.parked == (HeldMessage("N14228", "a2"),)
    assert found.pending == ("N14228/owed-7",)
    assert found.pending_messages == {HeldMessage("N24211", "b2")}

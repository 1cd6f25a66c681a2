"""What is kept of ledgers and their outboxes."""

from dataclasses import replace

from shared.domain.outbox import address
from shared.domain.producer import BoundNumber, Ledger
from shared.storage.journal import Journal
from tests.entries import REGIONS
from tests.world import message, require

LEDGER = Ledger("bank", level=1, next=2, began=0, remembered=(BoundNumber("m-1", "digest", 1),))


async def test_a_ledger_that_is_not_stored_sends_nothing(journal: Journal, session: str) -> None:
    await journal.save_ledger(session, LEDGER, None)
    late = address("in", [message(2, session=session)], REGIONS)

    for version in (None, '"never"'):
        assert await journal.save_ledger(session, LEDGER, version, late) is None

    assert await journal.pending(session, REGIONS) == []


async def test_each_version_can_be_replaced_by_one_writer(journal: Journal, session: str) -> None:
    first = await journal.save_ledger(session, LEDGER, None)
    second = await journal.save_ledger(session, replace(LEDGER, next=3), first)

    assert second not in (None, first)
    assert await journal.save_ledger(session, replace(LEDGER, next=9), first) is None
    assert await journal.save_ledger(session, replace(LEDGER, next=4, began=3), second)
    stored = require(await journal.ledger(session, "bank"))
    assert stored.ledger == replace(LEDGER, next=4, began=3)


async def test_the_same_ids_under_new_numbers_are_another_outbox(
    journal: Journal, session: str
) -> None:
    old = message(0, session=session)
    new = replace(message(7, session=session), id=old.id)

    version = await journal.save_ledger(session, LEDGER, None, address("in", [old], REGIONS))
    assert await journal.save_ledger(session, LEDGER, version, address("in", [new], REGIONS))

    found = await journal.pending(session, REGIONS)
    assert {o.outbox.messages for o in found} == {(old,), (new,)}

"""What is kept of ledgers and their outboxes."""

from dataclasses import replace

from shared.domain.outbox import address
from shared.domain.producer import BoundNumber, KeptKeys, Ledger
from shared.storage.journal import Journal
from tests.entries import REGIONS
from tests.world import message, require

LEDGER = Ledger("bank", level=1, next=2, began=0, remembered=(BoundNumber("m-1", "digest", 1),))


async def stored(journal: Journal, session: str) -> tuple[Ledger, str]:
    """The ledger of the group and its version."""
    found = require(await journal.ledger(session, "bank"))
    return found.ledger, found.version


async def test_a_ledger_and_its_outbox_are_stored_together(journal: Journal, session: str) -> None:
    outbox = address("in", [message(n, session=session) for n in (0, 1)], REGIONS)

    version = await journal.save_ledger(session, LEDGER, None, outbox)

    assert await stored(journal, session) == (LEDGER, version)
    (pending,) = await journal.pending(session, REGIONS)
    assert pending.outbox == outbox


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
    third = await journal.save_ledger(session, replace(LEDGER, next=4, began=3), second)
    assert await stored(journal, session) == (replace(LEDGER, next=4, began=3), third)


async def test_the_same_ids_under_new_numbers_are_another_outbox(
    journal: Journal, session: str
) -> None:
    old = message(0, session=session)
    new = replace(message(7, session=session), id=old.id)

    version = await journal.save_ledger(session, LEDGER, None, address("in", [old], REGIONS))
    assert await journal.save_ledger(session, LEDGER, version, address("in", [new], REGIONS))

    found = await journal.pending(session, REGIONS)
    assert {o.outbox.messages for o in found} == {(old,), (new,)}


async def test_a_kept_key_is_found_by_its_group_and_refuses_another_with_its_ledger(
    journal: Journal, session: str
) -> None:
    bound = BoundNumber("key/1?", "digest", 2)
    kept = KeptKeys((bound,), seconds=60)
    version = await journal.save_ledger(session, LEDGER, None, keys=kept)
    outbox = address("in", [message(3, session=session)], REGIONS)

    later = replace(LEDGER, next=9)
    assert await journal.save_ledger(session, later, version, outbox, kept) is None

    assert await stored(journal, session) == (LEDGER, version)
    assert await journal.pending(session, REGIONS) == []
    assert await journal.key(session, "bank", "key/1?") == bound
    assert await journal.key(session, "shop", "key/1?") is None


async def test_a_forgotten_key_is_gone_with_its_ledgers_next_version(
    journal: Journal, session: str
) -> None:
    kept = KeptKeys((BoundNumber("key-1", "digest", 2),), seconds=60)
    forgotten = KeptKeys(forgotten=("key-1",))
    version = await journal.save_ledger(session, LEDGER, None, keys=kept)

    assert await journal.save_ledger(session, LEDGER, '"old"', keys=forgotten) is None
    assert await journal.key(session, "bank", "key-1") is not None
    later = await journal.save_ledger(session, LEDGER, version, keys=forgotten)

    assert later != version
    assert (await stored(journal, session))[1] == later
    assert await journal.key(session, "bank", "key-1") is None

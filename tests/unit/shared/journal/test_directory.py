"""How sessions are found by people, and what was written lately."""

from dataclasses import replace

from shared.domain.journal import Repetition
from shared.storage.journal import Journal
from tests.entries import attempt_of, begin, pending_in


async def test_new_entries_name_their_region_the_newest_first(
    journal: Journal, session: str
) -> None:
    await begin(journal, session)

    found = await journal.recent_entries(60, 1_000)

    region = attempt_of("a").owner.region
    assert any(one.region == region and one.messages == 1 for one in found)
    assert [*found] == sorted(found, key=lambda one: one.age_seconds)
    assert len(await journal.recent_entries(60, 1)) == 1


async def test_what_waits_for_a_region_is_told_by_its_age(journal: Journal, session: str) -> None:
    await journal.add_pending(session, pending_in(session, f"{session}-nowhere"))

    assert len(await journal.waiting_seconds(f"{session}-nowhere", -5, 10)) == 1
    assert [*await journal.waiting_seconds(f"{session}-nowhere", 3_600, 10)] == []
    assert [*await journal.waiting_seconds(f"{session}-region", -5, 10)] == []


async def test_who_sends_a_report_again_is_recorded_once(journal: Journal, session: str) -> None:
    first, second = (Repetition(who, "mended", 1.5, "d") for who in ("Ada", "Bob"))

    assert await journal.repetition(session, "r") is None
    assert await journal.begin_repetition(session, "r", first) == first
    assert await journal.begin_repetition(session, "r", second) == first
    await journal.end_repetition(session, "r")
    await journal.end_repetition(session, "r")
    assert await journal.repetition(session, "r") == replace(first, is_done=True)
    assert await journal.repetition(session, "other") is None

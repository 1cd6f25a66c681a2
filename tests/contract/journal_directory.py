"""What every Journal promises about finding sessions, and what was written lately."""

from dataclasses import replace

from shared.domain.journal import Repetition
from shared.ports import WriteResult
from shared.storage.journal import Journal
from tests.contract.journal import attempt_of, debt, step


async def begin(journal: Journal, *sessions: str) -> None:
    for session in sessions:
        assert await journal.append(step(None, session)) is WriteResult.CREATED


class JournalDirectoryContract:
    """The promises, one test each."""

    async def test_sessions_are_listed_by_name_page_by_page(
        self, journal: Journal, session: str
    ) -> None:
        names = [f"{session}-{n}" for n in range(5)]
        await begin(journal, *reversed(names), f"other-{session}")

        first = await journal.listed(session, "", 3)
        second = await journal.listed(session, first[-1], 3)

        assert [*first] == names[:3]
        assert [*second] == names[3:]

    async def test_a_session_is_listed_once_however_long_it_is(
        self, journal: Journal, session: str
    ) -> None:
        head = step(None, session)
        await journal.append(head)
        await journal.append(step(head, session))

        assert [*await journal.listed(session, "", 10)] == [session]

    async def test_an_outbox_without_entries_makes_no_session(
        self, journal: Journal, session: str
    ) -> None:
        await journal.add_pending(session, debt(session, "east"))

        assert [*await journal.listed(session, "", 10)] == []

    async def test_new_entries_name_their_region_the_newest_first(
        self, journal: Journal, session: str
    ) -> None:
        await begin(journal, session)

        found = await journal.recent_entries(60, 1_000)

        region = attempt_of("a").owner.region
        assert any(one.region == region and one.messages == 1 for one in found)
        assert [*found] == sorted(found, key=lambda one: one.age_seconds)
        assert len(await journal.recent_entries(60, 1)) == 1

    async def test_what_waits_for_a_region_is_told_by_its_age(
        self, journal: Journal, session: str
    ) -> None:
        await journal.add_pending(session, debt(session, f"{session}-nowhere"))

        assert len(await journal.waiting_seconds(f"{session}-nowhere", -5, 10)) == 1
        assert [*await journal.waiting_seconds(f"{session}-nowhere", 3_600, 10)] == []
        assert [*await journal.waiting_seconds(f"{session}-region", -5, 10)] == []

    async def test_who_sends_a_report_again_is_recorded_once(
        self, journal: Journal, session: str
    ) -> None:
        first, second = (Repetition(who, "mended", 1.5, "d") for who in ("Ada", "Bob"))

        assert await journal.repetition(session, "r") is None
        assert await journal.begin_repetition(session, "r", first) == first
        assert await journal.begin_repetition(session, "r", second) == first
        await journal.end_repetition(session, "r")
        await journal.end_repetition(session, "r")
        assert await journal.repetition(session, "r") == replace(first, is_done=True)
        assert await journal.repetition(session, "other") is None

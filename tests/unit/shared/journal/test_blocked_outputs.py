"""What the journal keeps of outputs that a queue does not take."""

from dataclasses import replace

from shared.domain.outbox import Delivered
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from tests.entries import REGIONS, begin, blocked_at, delivered, outbox_to, pending_in


async def test_a_refusal_that_is_recorded_late_blocks_nothing_that_others_have_sent(
    journal: Journal, session: str
) -> None:
    _, pending = await begin(journal, session, outbox_to(session, "audit"))

    await journal.acknowledge(pending, Delivered(("east",)))
    await journal.acknowledge(pending, blocked_at("audit"))

    assert await journal.blocked(session) == []
    (west,) = await journal.pending(session, ["west"])
    assert west.outbox.regions == ("west",)


async def test_it_is_found_by_its_region_and_queue_until_it_took_everything(
    journal: Journal, session: str
) -> None:
    queue = f"audit-{session}"
    entry, pending = await begin(journal, session, outbox_to(session, queue))

    async def found(region: str, name: str) -> list[str]:
        need = SessionNeed.UNBLOCKING
        return [
            *await journal.sessions(need, region=region, queue=name, older_than_seconds=-5, limit=9)
        ]

    await journal.acknowledge(pending, blocked_at(queue))
    assert await found("east", queue) == [session]
    assert await found("west", queue) == await found("east", "another") == []

    await journal.acknowledge(pending, Delivered(REGIONS, taken={"east": (queue,)}))
    assert await found("east", queue) == []
    assert await journal.blocked(session) == []
    assert await journal.entry(session, 0) == delivered(entry)


async def test_blocked_queues_are_named_once_each(journal: Journal, session: str) -> None:
    region = f"region-{session}"
    # Whichever is the oldest, another has one of its queues and one that it has not.
    for number, queues in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
        one = f"{session}-{number}"
        outbox = replace(outbox_to(one, *queues), regions=(region,))
        _, pending = await begin(journal, one, outbox)
        await journal.acknowledge(pending, blocked_at(*queues, region=region))

    assert sorted(await journal.blocked_queues(region)) == ["a", "b", "c"]
    assert await journal.blocked_queues("nowhere") == []


async def test_a_producers_blocked_copies_are_kept_until_they_are_taken(
    journal: Journal, session: str
) -> None:
    outbox = pending_in(session, "east")
    await journal.add_pending(session, outbox)
    (pending,) = await journal.pending(session, REGIONS)

    await journal.acknowledge(pending, blocked_at("out"))
    (blocked,) = await journal.blocked(session)
    assert (blocked.position, blocked.outbox.messages) == (None, outbox.messages)

    await journal.acknowledge(blocked, Delivered(("east",), taken={"east": ("out",)}))
    assert await journal.blocked(session) == []

"""What the journal keeps of outputs that a queue does not take."""

from dataclasses import replace

from shared.domain.outbox import Delivered, OutputAction, OutputDecision
from shared.ports import Carried, SessionNeed, WriteResult
from shared.storage.journal import Journal
from tests.entries import (
    DECISION,
    REGIONS,
    WHY,
    begin,
    blocked_at,
    delivered,
    outbox_to,
    pending_in,
    step,
)


async def test_a_blocked_queue_is_kept_with_its_reason_and_no_region_waits(
    journal: Journal, session: str
) -> None:
    _, pending = await begin(journal, session, outbox_to(session, "audit", "out"))

    await journal.acknowledge(pending, Delivered((), taken={"west": ("out",)}))
    await journal.acknowledge(
        pending,
        Delivered(("east",), taken={"east": ("out",)}, blocked={"east": {"audit": WHY}}),
    )

    (found,) = await journal.blocked(session)
    assert (found.session, found.position) == (session, 0)
    assert found.outbox.regions == ("west",)
    assert found.outbox.blocked == {"east": {"audit": WHY}}
    assert found.outbox.delivered == {"east": ("out",), "west": ("out",)}
    assert await journal.pending(session, ["east"]) == []
    assert [one.session for one in await journal.pending(session, ["west"])] == [session]


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


async def test_a_decision_is_kept_and_says_what_is_dropped(journal: Journal, session: str) -> None:
    _, pending = await begin(journal, session, outbox_to(session, "audit"))
    await journal.acknowledge(pending, blocked_at("audit"))

    await journal.decide(pending, {"audit": DECISION})
    (decided,) = await journal.blocked(session)
    assert decided.outbox.decided == {"audit": DECISION}
    assert decided.outbox.destination_of("audit") == "other"
    assert not decided.outbox.is_dropped("audit")

    dropped = OutputDecision(OutputAction.DROP, "Ada", "nobody reads it")
    await journal.decide(pending, {"audit": dropped})
    (left,) = await journal.blocked(session)
    assert left.outbox.is_dropped("audit")


async def test_what_regions_still_miss_is_recorded_without_a_read(
    journal: Journal, session: str
) -> None:
    await begin(journal, session, pending_in(session, *REGIONS))

    await journal.leave_pending(session, 0, ["west"])
    assert await journal.pending(session, ["east"]) == []
    assert len(await journal.pending(session, ["west"])) == 1

    await journal.leave_pending(session, 0, [])
    await journal.leave_pending(session, 7, [])
    assert await journal.pending(session, REGIONS) == []


async def test_the_next_entry_carries_which_regions_are_left(
    journal: Journal, session: str
) -> None:
    first, _ = await begin(journal, session, pending_in(session, *REGIONS))

    carried = Carried(left=("west",))
    assert await journal.append(step(first, session), carried) is WriteResult.CREATED

    assert await journal.pending(session, ["east"]) == []
    assert len(await journal.pending(session, ["west"])) == 1

"""Somebody follows a session from any region: each entry that ended is told, in order, once.

Time is virtual where somebody waits: a second passes only while everybody does.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import azure.functions as func
import pytest

from functions.http.watch import (
    ANSWER_CHARACTERS_MAX,
    WAIT_SECONDS,
    WAIT_SECONDS_MAX,
    tell_changes,
    tell_state,
)
from proof.simulation.world import virtual_time
from shared.domain.journal import Entry
from shared.domain.next_entry import STATE_INLINE_BYTES_MAX
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.engine.operate.watch import (
    ENTRIES_MAX,
    FIRST_PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    WATCHERS_MAX,
    changes_after,
)
from shared.ports import StoredEntry
from shared.storage.entries import position_id
from tests.asking import ask, document
from tests.business import BusinessWorld, payment
from tests.entries import claim, step
from tests.loop_clock import LoopClock, in_world
from tests.scenarios.test_when_a_state_is_large import LARGE, page
from tests.scenarios.test_when_a_state_is_large import handlers as book_handlers
from tests.scenarios.test_when_old_entries_are_compacted import long_session
from tests.scenarios.test_when_the_journal_is_silent import CALL_SECONDS, SilentWorld
from tests.world import IMPATIENT, SKIP, World, message, take

# More than any of these watchers needs.
ANSWERS_MAX = 100
ERASE = ResolutionRequest(ResolutionAction.ERASE, "Ada", "asked to be forgotten")


def waiting_world() -> World:
    """A world in whose time somebody can wait."""
    return World(LoopClock(), policy=IMPATIENT)


def events_of(answer: func.HttpResponse) -> list[dict[str, Any]]:
    """What an EventSource makes of an answer: `id`, the `event` where it has a name, and `data`."""
    assert (answer.status_code, answer.mimetype) == (200, "text/event-stream")
    blocks = answer.get_body().decode().split("\n\n")
    assert (blocks[0], blocks[-1]) == ("retry: 1000", "")
    events = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks[1:-1]]
    return [one | {"id": int(one["id"]), "data": json.loads(one["data"])} for one in events]


async def watch(
    worker: Services, after: int | None = None, /, session: str = "acc-7", **asked: str
) -> list[dict[str, Any]]:
    """The events of one answer; `after` is the id of the last event, as an EventSource says it."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    request = ask(method="GET", headers=headers, route={"session": session}, query=asked)
    return events_of(await tell_changes(worker, request))


async def follow(*workers: Services, until: int, after: int | None = None) -> list[dict[str, Any]]:
    """The events of as many answers as it takes to hear of a position, of one worker after another.

    Each answer but the first goes on where the one before ended.
    """
    told: list[dict[str, Any]] = []
    for answer in range(ANSWERS_MAX):
        told += await watch(workers[answer % len(workers)], told[-1]["id"] if told else after)
        if told and told[-1]["id"] >= until:
            return told
    pytest.fail(f"never heard of position {until}, but {told}")


def told_of(entries: Sequence[dict[str, Any]]) -> list[tuple[int, str, list[str]]]:
    """The position, the status and the messages of stored entries."""
    ids = ([one["id"] for one in entry["identities"]] for entry in entries)
    return [(int(e["id"]), e["status"], found) for e, found in zip(entries, ids, strict=True)]


def heard(events: Sequence[dict[str, Any]]) -> list[tuple[int, str, list[str]]]:
    """The same of events, which must have no other names."""
    assert [one for one in events if "event" in one] == []
    data = [one["data"] for one in events]
    assert [one["position"] for one in data] == [one["id"] for one in events]
    return [(d["position"], d["status"], [one["id"] for one in d["messages"]]) for d in data]


async def halted_and_resolved(world: World) -> None:
    """A session with entries of every kind."""
    await take(world.east, message(0, kind="account.bill"), message(1, kind="account.burn"))
    await take(world.west, message(2), message(5))
    await world.east.resolver.resolve("acc-7", SKIP)
    await take(world.east, message(3, kind="account.hint"), message(4))


@in_world(waiting_world)
async def test_when_east_commits_a_watcher_in_the_west_is_told_at_once(world: World) -> None:
    await take(world.east, message(0))
    watching = asyncio.ensure_future(watch(world.west, 0))
    await world.clock.sleep(5)
    await take(world.east, message(1, kind="account.bill"))
    committed = world.clock.now()

    (event,) = await watching

    assert world.clock.now() - committed <= PAUSE_SECONDS_MAX
    (output,) = world.bus.messages("west", "out")
    assert event["data"] == {
        "position": 1,
        "time": event["data"]["time"],
        "status": "completed",
        "messages": [{"id": message(1).id, "type": "account.bill"}],
        "outputs": [output.id],
    }
    assert output.body.decode() not in json.dumps(event)


@in_world(waiting_world)
async def test_wherever_a_watcher_goes_on_it_hears_each_entry_once_and_none_is_skipped(
    world: World,
) -> None:
    await halted_and_resolved(world)
    stored = told_of(world.entries())
    assert {status for _, status, _ in stored} == {"completed", "faulted", "parked", "skipped"}

    for after in range(-1, len(stored) - 1):
        events = await watch(world.west, after) if after >= 0 else await watch(world.west)
        assert heard(events) == stored[after + 1 :]


@in_world(waiting_world)
async def test_the_reason_of_a_fault_and_what_a_person_decided_are_told(world: World) -> None:
    await halted_and_resolved(world)

    told = [one["data"] for one in await watch(world.west)]

    assert [one["action"] for one in told if "action" in one] == ["skip"]
    assert [one["reason"] for one in told if one["status"] == "faulted"] == [
        "ArithmeticError: cannot burn 2",
        "ArithmeticError: hints are not taken",
    ]


@in_world(waiting_world)
async def test_bodies_and_states_are_told_where_whole_entries_are_asked_for(world: World) -> None:
    await take(world.east, message(0, 481_516, kind="account.bill"))

    (small,) = await watch(world.west)
    (whole,) = await watch(world.west, entries="whole")

    assert "481516" not in json.dumps(small)
    assert whole["data"]["entry"]["state"] == {"amounts": [481_516]}
    assert "481516" in whole["data"]["entry"]["outbox"]["messages"][0]["body"]


@in_world(waiting_world)
async def test_while_both_regions_commit_a_watcher_that_changes_regions_hears_all(
    world: World,
) -> None:
    async def commit() -> None:
        for sequence in range(60):
            worker = (world.east, world.west)[sequence % 2]
            await take(worker, message(sequence))
            await world.clock.sleep(sequence % 7 / 3)

    committing = asyncio.ensure_future(commit())
    events = await follow(world.east, world.west, world.worker("west"), until=59)
    await committing

    assert heard(events) == told_of(world.entries())


@in_world(lambda: BusinessWorld(clock=LoopClock()))
async def test_when_an_entry_is_a_claim_it_is_told_once_it_has_ended(world: BusinessWorld) -> None:
    ended = asyncio.Event()
    world.outside.before = ended.wait  # type: ignore[assignment]
    await take(world.east, message(0))
    working = asyncio.ensure_future(take(world.east, payment(1)))
    await world.clock.sleep(1)
    assert world.entries()[-1]["status"] == "working"

    assert heard(await watch(world.west)) == told_of(world.entries()[:1])
    assert await watch(world.west, 0, wait="3") == []
    assert world.clock.now() == 4
    watching = asyncio.ensure_future(follow(world.west, until=1, after=0))
    await world.clock.sleep(1)
    ended.set()
    await working

    assert heard(await watching) == told_of(world.entries()[1:])
    assert world.entries()[1]["status"] == "completed"


async def test_when_compaction_removed_entries_the_oldest_left_is_named(world: World) -> None:
    await long_session(world, 120)
    await take(world.east, message(120))
    await world.east.compactor.compact()
    oldest = int(world.entries()[0]["id"])
    assert oldest > 1

    for after in (None, 0, oldest - 2):
        removed, first, *_ = await watch(world.west, after)
        assert removed == {"id": oldest - 1, "event": "removed", "data": {"oldest": oldest}}
        assert first["id"] == oldest
    # Who goes on behind that is told of it no more.
    assert heard(await watch(world.west, oldest - 1)) == told_of(world.entries())


@in_world(waiting_world)
async def test_when_what_a_watcher_waits_for_is_erased_it_is_told_in_the_next_answer(
    world: World,
) -> None:
    await take(world.east, message(0))
    watching = asyncio.ensure_future(watch(world.west, 0))
    await world.clock.sleep(3 * FIRST_PAUSE_SECONDS)
    await take(world.east, message(1))
    await world.east.resolver.resolve("acc-7", ERASE)

    assert await watching == []
    removed, erased = await watch(world.west, 0)

    assert removed == {"id": 1, "event": "removed", "data": {"oldest": 2}}
    assert (erased["id"], erased["data"]["action"]) == (2, "erase")


async def test_when_the_journal_ends_before_a_position_a_watcher_is_told(world: World) -> None:
    """As after it was restored to an earlier time."""
    await take(world.east, *map(message, range(3)))

    (rewound,) = await watch(world.west, 7)

    assert rewound == {"id": 2, "event": "rewound", "data": {"newest": 2}}


@in_world(waiting_world)
async def test_a_session_that_has_not_begun_is_waited_for(world: World) -> None:
    watching = asyncio.ensure_future(watch(world.west))
    await world.clock.sleep(4)
    await take(world.east, message(0))

    assert heard(await watching) == told_of(world.entries())


@pytest.mark.parametrize(("asked", "seconds"), [("", WAIT_SECONDS), ("0", 0), ("20", 20)])
def test_where_nothing_happens_an_answer_ends_in_its_time(asked: str, seconds: float) -> None:
    async def scenario() -> None:
        world = waiting_world()
        await take(world.east, message(0))
        world.journal.fault_plan.calls.clear()

        assert await watch(world.west, 0, **({"wait": asked} if asked else {})) == []

        assert world.clock.now() == seconds
        looks = world.journal.fault_plan.calls
        # As docs/cost.md says: 0.25, 0.5, 1 and then 2 seconds apart.
        assert looks["stored_entry"] == {0: 0, 10: 8, 20: 13}[int(seconds)]
        assert looks.keys() <= {"oldest_entries", "stored_entry"}

    virtual_time.run(scenario())


async def test_an_answer_has_so_many_changes_at_most_and_the_next_one_goes_on(world: World) -> None:
    await long_session(world, 2 * ENTRIES_MAX)

    first = await watch(world.west)
    second = await watch(world.west, first[-1]["id"])

    assert len(first) == ENTRIES_MAX
    assert heard([*first, *second]) == told_of(world.entries())[: len(first) + len(second)]


async def test_an_answer_of_whole_entries_ends_behind_the_one_that_makes_it_long() -> None:
    world = World(handlers=book_handlers)
    size = STATE_INLINE_BYTES_MAX - 1_000
    for number in range(ENTRIES_MAX):
        await world.east.consumer.consume(page(number, "a", size if number == 0 else 0))

    first = await watch(world.west, session="book-1", entries="whole")
    second = await watch(world.west, first[-1]["id"], session="book-1", entries="whole")

    assert (len(first) - 1) * size < ANSWER_CHARACTERS_MAX <= len(json.dumps(first))
    assert [one["id"] for one in (*first, *second)] == [*range(ENTRIES_MAX)]


@pytest.mark.parametrize("begins", [0.0, 3.0])
def test_when_the_store_is_silent_a_watcher_is_told_so_within_its_time(begins: float) -> None:
    async def scenario() -> None:
        world = SilentWorld()
        await take(world.east, message(0))

        async def fall_silent() -> None:
            await world.clock.sleep(begins)
            world.silent.is_silent = True

        falling = asyncio.ensure_future(fall_silent())
        await asyncio.sleep(0)
        request = ask(method="GET", route={"session": "acc-7"}, query={"after": "0"})
        answer = await tell_changes(world.west, request)
        await falling

        assert (answer.status_code, document(answer)["type"]) == (503, "Unavailable")
        assert answer.headers["Retry-After"] == "1"
        assert world.clock.now() <= WAIT_SECONDS + CALL_SECONDS
        world.silent.is_silent = False
        assert await watch(world.west, 0, wait="0") == []

    virtual_time.run(scenario())


@in_world(waiting_world)
async def test_a_hundred_watchers_hear_the_same_and_one_too_many_is_refused_by_name(
    world: World,
) -> None:
    workers = [world.worker(region) for region in ("east", "west") for _ in range(2)]
    await take(world.east, message(0))
    watching = [
        asyncio.ensure_future(follow(worker, until=5, after=0))
        for worker in workers
        for _ in range(25)
    ]
    full = [asyncio.ensure_future(watch(world.west, 0)) for _ in range(WATCHERS_MAX)]
    await world.clock.sleep(1)

    request = ask(method="GET", route={"session": "acc-8"})
    refused = await tell_changes(world.west, request)

    assert (refused.status_code, document(refused)["type"]) == (429, "TooManyWatchers")
    assert refused.headers["Retry-After"] == "5"
    for sequence in range(1, 6):
        await take(world.east, message(sequence))
        await world.clock.sleep(1.5)
    assert [heard(await one) for one in watching] == [told_of(world.entries()[1:])] * 100
    assert {len(await one) > 0 for one in full} == {True}
    # Each place came free.
    assert (await tell_changes(world.west, request)).status_code == 200


@pytest.mark.parametrize(
    ("asked", "header"),
    [
        ({"after": "x"}, None),
        ({"after": "-1"}, None),
        ({}, "1.5"),
        ({"wait": str(WAIT_SECONDS_MAX + 1)}, None),
        ({"entries": "yes"}, None),
        ({"before": "1"}, None),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: World, asked: dict[str, str], header: str | None
) -> None:
    headers = {"Last-Event-ID": header} if header else {}
    request = ask(method="GET", headers=headers, route={"session": "acc-7"}, query=asked)

    answer = await tell_changes(world.east, request)

    assert (answer.status_code, document(answer)["type"]) == (400, "InvalidMessage")


async def test_the_last_event_counts_before_the_position_in_the_address(world: World) -> None:
    await take(world.east, *map(message, range(3)))

    assert [one["id"] for one in await watch(world.west, 1, after="0")] == [2]
    assert [one["id"] for one in await watch(world.west, after="0")] == [1, 2]


def stored(*entries: Entry) -> list[StoredEntry]:
    return [StoredEntry(entry, "v", 1.0, 2.0) for entry in entries]


def test_a_hole_or_a_claim_ends_what_is_told() -> None:
    first = step(None, "s")
    second = step(first, "s")
    fourth = step(step(second, "s"), "s")
    working = replace(claim("s"), position=2)

    def told(after: int, *found: Entry) -> tuple[list[int], int | None]:
        changes = changes_after(after, stored(*found))
        return [one.entry.position for one in changes.entries], changes.oldest

    assert told(-1, first, second) == ([0, 1], None)
    assert told(0, first, second) == ([1], None)
    # Compaction came between two pages of the store.
    assert told(-1, first, second, fourth) == ([0, 1], None)
    assert told(1, fourth) == ([3], 3)
    assert told(0, first, second, working) == ([1], None)
    assert told(1, second, working) == ([], None)
    assert told(0, working) == ([], 2)
    assert told(1, second) == told(-1) == ([], None)


# Somebody reads a session's state.


async def state(
    worker: Services, tag: str = "", session: str = "acc-7"
) -> tuple[int, str, dict[str, Any] | None]:
    """The status of an answer, its ETag, and what it says where it says something."""
    headers = {"If-None-Match": tag} if tag else {}
    request = ask(method="GET", headers=headers, route={"session": session})
    answer = await tell_state(worker, request)
    body = answer.get_body()
    return answer.status_code, answer.headers.get("ETag", ""), json.loads(body) if body else None


async def test_a_state_is_read_from_either_region_with_where_it_was_written(world: World) -> None:
    await take(world.east, message(0), message(1))

    status, tag, told = await state(world.west)

    assert (status, tag) == (200, '"1"')
    assert told == {
        "session": "acc-7",
        "position": 1,
        "model": {"name": "Account", "version": 1},
        "state": {"amounts": [1, 2]},
    }


async def test_a_state_that_the_caller_has_is_not_sent_again(world: World) -> None:
    await take(world.east, message(0))
    _, tag, _ = await state(world.west)

    for known in (tag, f"W/{tag}", f'"7", {tag}', "*"):
        assert await state(world.west, known) == (304, tag, None)
    await take(world.east, message(1))
    assert (await state(world.west, tag))[:2] == (200, '"1"')


async def test_of_an_unknown_session_there_is_no_state(world: World) -> None:
    status, _, told = await state(world.west, session="acc-8")

    assert (status, (told or {})["type"]) == (404, "UnknownSession")


async def test_a_halt_and_what_is_parked_behind_it_leave_the_state_as_it_is(world: World) -> None:
    await take(world.east, message(0))
    before = await state(world.west)
    await take(world.east, message(1, kind="account.burn"), message(2))

    assert await state(world.west) == before
    assert await state(world.west, before[1]) == (304, before[1], None)


@in_world(lambda: BusinessWorld(clock=LoopClock()))
async def test_while_a_session_is_claimed_its_state_is_the_one_before(world: BusinessWorld) -> None:
    ended = asyncio.Event()
    world.outside.before = ended.wait  # type: ignore[assignment]
    await take(world.east, message(0))
    before = await state(world.west)
    working = asyncio.ensure_future(take(world.east, payment(1)))
    await world.clock.sleep(1)

    assert world.entries()[-1]["status"] == "working"
    assert await state(world.west) == before
    ended.set()
    await working
    assert (await state(world.west))[1] == '"1"'


async def test_after_an_erasure_the_state_is_empty_and_no_older_one_is_taken_for_it(
    world: World,
) -> None:
    await take(world.east, message(0), message(1))
    _, before, _ = await state(world.west)
    await world.east.resolver.resolve("acc-7", ERASE)

    status, tag, told = await state(world.west, before)

    assert (status, (told or {})["state"], (told or {})["position"]) == (200, {}, None)
    assert await state(world.west, tag) == (304, tag, None)


async def test_each_change_of_a_large_state_changes_its_tag_and_nothing_else_does() -> None:
    world, known, expected = World(handlers=book_handlers), "", ""
    pages = [("a", 3), ("b", LARGE), ("", 0), ("", 0), ("c", 1), ("d", 1), ("", 0)]

    for number, (letter, count) in enumerate(pages):
        await world.worker("east").consumer.consume(page(number, letter, count))
        expected += letter * count
        status, tag, told = await state(world.west, known, session="book-1")
        assert status == (200 if count else 304)
        assert told is None or told["state"] == {"text": expected}
        known = tag


async def test_when_a_state_was_compacted_meanwhile_it_is_to_be_read_again(world: World) -> None:
    await take(world.east, message(0), message(1, kind="account.burn"))
    del world.journal.partitions["acc-7"][position_id(0)]

    status, _, told = await state(world.west)

    assert (status, (told or {})["type"]) == (503, "OutcomeUnknown")

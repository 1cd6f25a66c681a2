"""When reports lie in the error queue, all are found, and each is ended once."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from functions.http.error_queue import list_errors
from shared.domain.errors import InvalidMessage, LockstepError, NotRepeatable
from shared.domain.message import Message
from shared.domain.wire import PREFIX, to_properties
from shared.engine.build import Services
from shared.engine.operate.error_queue import QueuedReport, RepeatRequest
from shared.engine.publish.ingest import KEY_SECONDS
from shared.storage.documents import ENDED_REPORT_SECONDS, REPORT_BYTES_MAX
from shared.testkit.injected_faults import CallFault
from tests.asking import ask
from tests.world import DELAY_SECONDS, REGIONS, World, message

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


async def reject(world: World, stray: Message, **attributes: object) -> None:
    """A delivery that both regions rejected, each its copy."""
    said = dict[str, object](to_properties(stray))
    said |= {PREFIX + name: value for name, value in attributes.items()}
    for region in REGIONS:
        await getattr(world, region).rejecter.reject(stray.session, said, stray.body, "no time")


async def reports_of(worker: Services, session: str | None = None) -> list[QueuedReport]:
    return [*(await worker.errors.browse(session, limit=100)).reports]


def about(report: QueuedReport, who: str = "Ada") -> RepeatRequest:
    queued = report.queued
    return RepeatRequest(queued.session, queued.id, queued.sequence, who, "looked into")


async def pages(worker: Services, limit: int, **query: str) -> list[list[dict[str, Any]]]:
    """The list as a caller over HTTP pages through it."""
    found: list[list[dict[str, Any]]] = []
    asked: Mapping[str, str] = query
    while True:
        response = await list_errors(worker, ask(query={**asked, "limit": str(limit)}))
        page = json.loads(response.get_body())
        assert page["complete"], page["next"]
        found.append(page["errors"])
        if page["next"]["after"] is None:
            return found
        asked = {**query, "after": page["next"]["after"]}


@pytest.mark.parametrize("region", REGIONS)
async def test_when_many_wait_all_are_found_once_and_what_is_open_comes_first(
    world: World, region: str
) -> None:
    # 69 in 49 sessions, of which 20 have two. Five ask for a person, each behind one that does not.
    strays = [message(n, session=f"acc-{m}") for m in range(49) for n in range(2 if m < 20 else 1)]
    for stray in strays:
        await reject(world, stray)
    world.clock.seconds += DELAY_SECONDS
    listed = await reports_of(world.east)
    last = {one.queued.session: one.queued.id for one in listed}
    kept = {last[f"acc-{n}"] for n in range(5)}
    for one in listed:
        if one.queued.id not in kept:
            await world.west.errors.dismiss(about(await in_region(world.west, one)))

    found = await pages(getattr(world, region), 20)

    shown = [*chain(*found)]
    assert [len(page) for page in found] == [20, 20, 20, 9]
    assert len({one["report"] for one in shown}) == len(strays) == 69
    assert {one["report"] for one in shown[:5]} == kept
    assert [one["open"] for one in shown] == [True] * 5 + [False] * 64


async def in_region(worker: Services, report: QueuedReport) -> QueuedReport:
    """The same report in the queue of another region, where it has another number."""
    (found,) = [
        one
        for one in await reports_of(worker, report.queued.session)
        if one.queued.id == report.queued.id
    ]
    return found


async def test_when_one_is_decided_between_two_pages_no_other_is_left_out(world: World) -> None:
    for n in range(6):
        await reject(world, message(0, session=f"acc-{n}"))
    world.clock.seconds += DELAY_SECONDS
    first = await world.east.errors.browse(limit=3)
    await world.east.errors.dismiss(about(first.reports[0]))

    rest = await world.east.errors.browse(after=first.after, limit=10)

    ids = {one.queued.id for one in (*first.reports, *rest.reports)}
    assert len(ids) == 6


async def test_when_a_place_in_the_list_is_not_one_that_was_said_it_is_refused(
    world: World,
) -> None:
    for query in ({"after": "WzFd"}, {"after": "???"}, {"above": "3"}):
        response = await list_errors(world.east, ask(query=query))
        assert response.status_code == 400


async def test_when_it_is_sent_again_it_has_what_the_delivery_had(world: World) -> None:
    stray = message(0)
    had: dict[str, str] = {
        "time": "2026-11-24T23:30:00Z",
        "source": "urn:theirs",
        "replyto": "answers",
        "replysession": "acc-8",
        "correlationid": "theirs",
        "traceparent": TRACE,
    }
    await reject(world, stray, specversion="1.0.2", **had)
    world.clock.seconds += DELAY_SECONDS
    (report,) = await reports_of(world.east)

    shown = await world.east.errors.preview(about(report))
    sent = await world.east.errors.send_again(about(report))

    assert replace(sent, number=None) == shown
    assert (shown.session, shown.type, shown.body) == (stray.session, stray.type, stray.body)
    assert (shown.time, shown.source, shown.reply_to) == (had["time"], "urn:theirs", "answers")
    assert (shown.reply_session, shown.correlation) == ("acc-8", "theirs")
    assert shown.traceparent == TRACE
    world.clock.seconds += DELAY_SECONDS
    for region in REGIONS:
        assert world.bus.messages(region, "in") == [sent]


async def test_when_it_is_sent_again_what_is_given_counts_and_what_is_empty_is_left_out(
    world: World,
) -> None:
    await reject(world, message(0), time="noon", replyto="forged", traceparent="none")
    world.clock.seconds += DELAY_SECONDS
    (report,) = await reports_of(world.east)

    with pytest.raises(InvalidMessage, match="not ISO 8601: say time"):
        await world.east.errors.send_again(about(report))
    mended = replace(about(report), time="2026-11-24T23:30:00Z", replyto="", source="urn:ours")
    sent = await world.east.errors.send_again(mended)
    with pytest.raises(NotRepeatable, match="Ada decided otherwise before"):
        await world.west.errors.send_again(
            replace(
                mended, replyto=None, sequence=(await in_region(world.west, report)).queued.sequence
            )
        )

    assert (sent.time, sent.reply_to) == ("2026-11-24T23:30:00Z", None)
    assert (sent.source, sent.traceparent) == ("urn:ours", None)
    assert world.bus.messages("east", "in") == [sent]


async def test_when_one_person_sends_and_another_dismisses_only_the_first_has_an_effect(
    world: World,
) -> None:
    await reject(world, message(0))
    world.clock.seconds += DELAY_SECONDS
    (east,), (west,) = [await reports_of(getattr(world, region)) for region in REGIONS]

    async def end(first: bool) -> object:
        try:
            if first:
                return await world.east.errors.dismiss(about(east))
            return await world.west.errors.send_again(about(west, "Bob"))
        except NotRepeatable as error:
            return error

    outcomes = await asyncio.gather(end(first=True), end(first=False))

    refused = [one for one in outcomes if isinstance(one, NotRepeatable)]
    was_sent = world.bus.messages("east", "in") != []
    assert len(refused) == 1
    assert isinstance(outcomes[0], NotRepeatable) is was_sent
    (shown,) = await reports_of(world.east)
    assert shown.repetition is not None
    assert (shown.repetition.is_done, shown.repetition.is_dismissed) == (True, not was_sent)


async def test_when_nobody_can_finish_what_was_begun_it_can_be_dismissed(world: World) -> None:
    await reject(world, message(0))
    world.clock.seconds += DELAY_SECONDS
    (report,) = await reports_of(world.east)
    world.journal.fault_plan.plan("end_repetition", CallFault.REFUSED)
    with pytest.raises(LockstepError):
        await world.east.errors.send_again(about(report))

    with pytest.raises(NotRepeatable, match="began to send it again"):
        await world.east.errors.dismiss(about(report, "Bob"))
    world.clock.seconds += KEY_SECONDS
    for _ in range(2):
        await world.east.errors.dismiss(about(report, "Bob"))

    (shown,) = await reports_of(world.east)
    assert shown.repetition is not None
    assert (shown.repetition.who, shown.repetition.is_dismissed) == ("Bob", True)


async def test_when_a_fault_is_dismissed_its_session_still_waits(world: World) -> None:
    await world.east.consumer.consume(message(0, session="acc-1", kind="account.burn"))
    (report,) = await reports_of(world.east)

    await world.east.errors.dismiss(about(report))

    head = await world.journal.head("acc-1")
    assert head is not None
    assert head.halt is not None


async def open_sessions(worker: Services, session: str | None = None, limit: int = 2) -> list[str]:
    """The sessions of the reports that are listed as open, page by page."""
    found: list[str] = []
    after = None
    while True:
        page = await worker.errors.list_open(session, after=after, limit=limit)
        found += [one.queued.session for one in page.reports]
        after = page.after
        if after is None:
            return found


async def test_open_ones_are_listed_and_ended_without_a_look_into_any_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        await reject(world, message(n, session=f"acc-{n}"))
        world.clock.seconds += n % 2
    await world.east.consumer.consume(message(0, session="acc-9", kind="account.burn"))
    monkeypatch.setattr(world.east.errors, "browser", None)

    listed = (await world.east.errors.list_open(limit=9)).reports
    assert await open_sessions(world.west) == [f"acc-{n}" for n in range(5)]
    assert await open_sessions(world.west, "acc-3") == ["acc-3"]
    await world.east.errors.dismiss(about(listed[0]))
    sent = await world.east.errors.send_again(about(listed[1]))

    assert await open_sessions(world.west) == ["acc-2", "acc-3", "acc-4"]
    assert (sent.session, sent.body) == ("acc-1", message(1).body)
    # A copy of a delivery that was ended is known while it is kept, and asks for nobody.
    await reject(world, message(0, session="acc-0"))
    assert await open_sessions(world.west) == ["acc-2", "acc-3", "acc-4"]
    world.clock.seconds += ENDED_REPORT_SECONDS
    await reject(world, message(0, session="acc-0"))
    assert await open_sessions(world.west) == ["acc-2", "acc-3", "acc-4"]


@pytest.mark.parametrize("decision", ["dismiss", "send_again"])
async def test_when_a_crash_leaves_an_ended_one_listed_the_next_look_takes_it_off(
    world: World, decision: str
) -> None:
    await reject(world, message(0, session="acc-7"))
    (report,) = (await world.east.errors.list_open(limit=9)).reports
    world.journal.fault_plan.plan("close_report", CallFault.REFUSED)
    with pytest.raises(LockstepError):
        await getattr(world.east.errors, decision)(about(report))
    assert await world.journal.open_report_times(9)

    assert await open_sessions(world.west) == []

    assert not await world.journal.open_report_times(9)
    assert len(world.bus.messages("east", "in")) == (decision == "send_again")


async def test_when_it_is_large_it_is_listed_and_lies_whole_in_the_queue(world: World) -> None:
    large = replace(message(0, session="acc-7"), body=b'{"amount":7}' + b" " * REPORT_BYTES_MAX)
    await reject(world, large)
    world.clock.seconds += DELAY_SECONDS
    (listed,) = (await world.east.errors.list_open(limit=9)).reports
    assert (listed.document, listed.is_repeatable) == ({"reason": "no time"}, False)
    with pytest.raises(NotRepeatable, match="whole in one report"):
        await world.east.errors.send_again(about(listed))
    (in_queue,) = await reports_of(world.east, "acc-7")

    sent = await world.east.errors.send_again(about(in_queue))

    assert sent.body == large.body
    assert await open_sessions(world.east) == []


async def test_when_the_journal_is_silent_nothing_is_reported_and_the_delivery_stays(
    world: World,
) -> None:
    world.journal.fault_plan.plan("keep_report", CallFault.REFUSED)

    with pytest.raises(LockstepError):
        await reject(world, message(0))

    assert not await world.journal.open_report_times(9)
    assert world.bus.messages("east", "errors") == []


async def test_when_a_session_is_removed_its_open_report_stays(world: World) -> None:
    await reject(world, message(5, session="acc-7"))
    await world.east.consumer.consume(message(0, session="acc-7"))
    (stored,) = await world.journal.oldest_entries("acc-7", 9)

    assert await world.journal.remove_session(stored)

    assert await world.journal.head("acc-7") is None
    assert await open_sessions(world.east) == ["acc-7"]

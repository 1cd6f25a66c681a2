"""When a message cannot be read, its number is used up by an entry that leads to its report."""

from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from functions.triggers.receive import receive_message
from shared.domain.errors import LockstepError, NotRepeatable
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.standstill import StandstillKind
from shared.domain.wire import PREFIX, to_properties
from shared.engine.operate.error_queue import QueuedReport, RepeatRequest
from shared.ports import DeadLetter
from shared.testkit.injected_faults import CallFault
from tests.deliveries import delivery, delivery_of
from tests.standstills import listed
from tests.world import DELAY_SECONDS, POLICY, REGIONS, SKIP, World, message, take

LATIN = b'{"amount":5,"name":"M\xfcller"}'
EDIT = ResolutionRequest(
    ResolutionAction.EDIT, "Ada", "it was Latin-1", body=b'{"amount":5}', type="account.add"
)


def properties_of(sent: Message, **attributes: object) -> dict[str, object]:
    changed = {PREFIX + name: value for name, value in attributes.items()}
    return {**to_properties(sent), **changed}


async def arrive(
    world: World, *regions: str, body: bytes = LATIN, said: Mapping[str, object] | None = None
) -> None:
    """Number 1 comes to these regions, or both, with content that nobody can read."""
    for region in regions or REGIONS:
        copy = delivery(body, said or properties_of(message(1)))
        await receive_message(getattr(world, region), copy)


async def the_report(world: World, region: str = "east") -> QueuedReport:
    world.clock.seconds += DELAY_SECONDS
    (report,) = (await getattr(world, region).errors.browse(limit=9)).reports
    assert isinstance(report, QueuedReport)
    return report


def about(report: QueuedReport) -> RepeatRequest:
    queued = report.queued
    return RepeatRequest(
        *(queued.session, queued.id, queued.sequence, "Ada", "it was Latin-1"),
        body=b'{"amount":5}',
    )


CASES: Mapping[str, tuple[bytes, dict[str, object]]] = {
    "a body that is not UTF-8": (LATIN, {}),
    "no body": (b"", {}),
    "a type that is no text": (message(1).body, {"type": 7}),
    "another version": (message(1).body, {"specversion": "1.0.2"}),
}


@pytest.mark.parametrize("case", CASES)
async def test_when_it_cannot_be_read_one_entry_leads_to_its_report(
    world: World, case: str
) -> None:
    body, attributes = CASES[case]
    await take(world.east, message(0))

    for _ in range(2):
        await arrive(world, body=body, said=properties_of(message(1), **attributes))
    await take(world.west, message(2))

    faults = [entry for entry in world.entries() if entry["status"] == "faulted"]
    report = await the_report(world)
    assert len(faults) == 1
    assert faults[0]["reason"].startswith("its message cannot be read: ")
    assert report.queued.id in faults[0]["reason"]
    assert b64decode(report.document["body"]) == body
    assert {one.id for region in REGIONS for one in world.bus.messages(region, "errors")} == {
        report.queued.id
    }
    world.clock.seconds += POLICY.standstill_seconds + 1
    (still,) = await listed(world.west)
    assert (still.kind, still.parked) == (StandstillKind.HALT, 1)


async def test_when_it_comes_before_its_turn_its_place_is_kept(world: World) -> None:
    await arrive(world)
    await take(world.east, message(2))

    await take(world.west, message(0))

    assert world.amounts() == [1]
    assert [entry["status"] for entry in world.entries()][-1] == "faulted"
    await world.east.resolver.resolve("acc-7", EDIT)
    assert world.amounts() == [1, 5, 3]


async def test_when_a_person_gives_the_content_it_takes_its_place_in_the_order(
    world: World,
) -> None:
    await take(world.east, message(0))
    await arrive(world, said=properties_of(message(1), time="2026-11-24T23:30:00Z"))
    await take(world.east, message(2))
    report = await the_report(world)

    assert (await world.west.errors.browse(limit=9)).reports[0].place.rank == 1
    with pytest.raises(NotRepeatable, match="stops session 'acc-7' at entry 1: edit that"):
        await world.east.errors.send_again(about(report))
    entry = await world.west.resolver.resolve("acc-7", EDIT)
    await arrive(world)

    assert entry.status is Status.COMPLETED
    assert world.amounts() == [1, 5, 3]
    assert world.bus.messages("east", "in") == []


async def test_when_it_was_skipped_its_correction_is_a_new_message(world: World) -> None:
    await take(world.east, message(0))
    await arrive(world)
    await take(world.east, message(2))
    await world.east.resolver.resolve("acc-7", SKIP)
    report = await the_report(world)

    sent = await world.east.errors.send_again(about(report))
    await take(world.east, sent)

    assert world.amounts() == [1, 3, 5]
    assert sent.number is not None
    assert sent.number.group != "bank"


async def test_when_its_sender_uses_the_number_again_that_is_refused_by_name(
    world: World,
) -> None:
    await take(world.east, message(0))
    await arrive(world)

    await receive_message(world.east, delivery_of(message(1)))

    assert world.amounts() == [1]
    reasons = {report["reason"] for report in world.reports()}
    assert any("number 1 of group 'bank' was used before" in reason for reason in reasons)


async def test_when_the_number_came_before_the_unreadable_one_changes_nothing(
    world: World,
) -> None:
    await take(world.east, message(0), message(1))

    await arrive(world)

    assert world.amounts() == [1, 2]
    assert len(world.entries()) == 2
    assert (await the_report(world)).queued.type == "lockstep.rejected"


UNKNOWN: Mapping[str, dict[str, object]] = {
    "a number that is text": {"producersequence": "one"},
    "a number beyond all": {"producersequence": 2**31},
    "a group of the app's own": {"producergroup": "$arrivals"},
    "no session": {"partitionkey": None},
    "a saga's session": {"partitionkey": "saga:o-1"},
    "no id": {"id": ""},
}


@pytest.mark.parametrize("case", UNKNOWN)
async def test_when_its_number_cannot_be_read_either_it_is_a_report_alone(
    world: World, case: str
) -> None:
    await arrive(world, said=properties_of(message(1), **UNKNOWN[case]))

    kept = [one for found in world.journal.partitions.values() for one in found.values()]
    assert [one for one in kept if one["kind"] == "entry"] == []
    assert (await the_report(world)).place.rank == 0


@pytest.mark.parametrize("lost", ["append", "send.east"])
async def test_when_a_call_fails_the_redelivery_brings_it_to_the_same_end(
    world: World, lost: str
) -> None:
    await take(world.east, message(0))
    plan = world.journal.fault_plan if lost == "append" else world.bus.fault_plan
    for fault in (CallFault.REFUSED, CallFault.LOST):
        plan.plan(lost, fault)
        away = ["west"] if lost == "send.east" else []
        with world.without(*away), suppress(LockstepError):
            await arrive(world, "east")

    await arrive(world)

    assert [entry["status"] for entry in world.entries()] == ["completed", "faulted"]
    assert (await the_report(world)).queued.id in world.entries()[1]["reason"]


async def test_when_the_broker_gave_up_on_it_its_number_is_used_up_as_well(world: World) -> None:
    await take(world.east, message(0))
    letter = DeadLetter("spoofed", properties_of(message(1)), LATIN, "delivered 750 times")
    world.bus.dead_letters["east", "in"].append(letter)

    assert await world.east.dead_letters.sweep() == 1
    await arrive(world, "west")

    assert [entry["status"] for entry in world.entries()] == ["completed", "faulted"]
    await world.east.resolver.resolve("acc-7", replace(EDIT, who="Bob"))
    assert world.amounts() == [1, 5]

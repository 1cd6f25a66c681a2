"""Input that nobody can take, or that looks as if: each has a named end, and nothing is lost."""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import azure.functions as func
import pytest

from functions.triggers.receive import receive_message
from shared.domain import wire
from shared.domain.errors import OutcomeUnknown
from shared.domain.message import BODY_BYTES_MAX, SEQUENCE_MAX, Message, Number
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.ports import SessionNeed
from tests.deliveries import delivery, delivery_of
from tests.world import GAP_SECONDS, REGIONS, World, message

PREFIX = wire.PREFIX
GOOD = wire.to_properties(message(0))
BODY = message(0).body


def without(name: str) -> dict[str, object]:
    """The properties of a good message but for one."""
    return {key: value for key, value in GOOD.items() if key != PREFIX + name}


def having(**attributes: object) -> dict[str, object]:
    """The properties of a good message with some others."""
    return GOOD | {PREFIX + name: value for name, value in attributes.items()}


def unnumbered(**attributes: object) -> dict[str, object]:
    """The properties of a message whose sender gives no numbers."""
    numbering = {PREFIX + name for name in wire.NUMBERING}
    return {key: value for key, value in having(**attributes).items() if key not in numbering}


@dataclass(frozen=True)
class Bad:
    """A delivery that is not a message, and what is said of it."""

    reason: str
    properties: Mapping[str, object] = field(default_factory=lambda: GOOD)
    body: bytes = BODY


REJECTED = {
    "no properties at all": Bad("specversion None", {}),
    "another version": Bad("specversion '0.3'", having(specversion="0.3")),
    "no session": Bad("attribute 'partitionkey' is missing", without("partitionkey")),
    "an empty session": Bad("the session is empty", having(partitionkey="")),
    "a session that is a number": Bad("'partitionkey' is missing or not", having(partitionkey=7)),
    "a session that is too long": Bad("the session has 129", having(partitionkey="s" * 129)),
    "no id": Bad("attribute 'id' is missing", without("id")),
    "an empty id": Bad("the message id is empty", having(id="")),
    "an id that is too long": Bad("the message id has 129", having(id="i" * 129)),
    "an id that is no text": Bad("the message id is no text", having(id="\ud800")),
    "no type": Bad("attribute 'type' is missing", without("type")),
    "an empty type": Bad("the type is empty", having(type="")),
    "no body": Bad("no body", body=b""),
    "a body that is not UTF-8": Bad("not UTF-8", body=b"\xff\xfe"),
    "a body that is too large": Bad("over 1000000", body=b"[" + b" " * BODY_BYTES_MAX + b"]"),
    "a body that escapes blow up": Bad("escaped, is over", body=b"\x01" * 300_000),
    "a reserved group": Bad("group '$arrivals' is reserved", having(producergroup="$arrivals")),
    "an empty group": Bad("needs a producer group", having(producergroup="")),
    "a number without a group": Bad("'producergroup' is missing", without("producergroup")),
    "a number without a sequence": Bad("'producersequence' is", without("producersequence")),
    "a number without a level": Bad("'ownerlevel' is missing", without("ownerlevel")),
    "a sequence that is text": Bad("not a whole number", having(producersequence="1")),
    "a sequence that is true": Bad("not a whole number", having(producersequence=True)),
    "a negative sequence": Bad("sequence number -1 is outside", having(producersequence=-1)),
    "a sequence that is too large": Bad(
        "is outside 0..", having(producersequence=SEQUENCE_MAX + 1)
    ),
    "a level that is too large": Bad("owner level 32768", having(ownerlevel=32_768)),
    "a time that is a number": Bad("'time' is missing or not text", having(time=17)),
    "neither number nor time": Bad("neither a number nor a time", unnumbered()),
    "no number and no real time": Bad("no ISO 8601 time", unnumbered(time="noon")),
    "no number and old": Bad("s that are remembered", unnumbered(time="2013-01-01T05:17:00Z")),
    "no number and not sent yet": Bad("in the future", unnumbered(time="2036-01-01T05:17:00Z")),
    "an empty place for answers": Bad("'replyto' is missing or not", having(replyto=None)),
}


@pytest.mark.parametrize("case", REJECTED)
async def test_what_is_no_message_goes_whole_to_the_error_queues(case: str) -> None:
    world = World()
    bad = REJECTED[case]

    await receive_message(world.east, delivery(bad.body, bad.properties))

    assert world.entries() == []
    for region in REGIONS:
        reports = [json.loads(m.body) for m in world.bus.messages(region, "errors")]
        assert all(bad.reason in report["reason"] for report in reports)
        assert b"".join(b64decode(report["body"]) for report in reports) == bad.body
        assert {json.dumps(report["properties"]) for report in reports} == {
            json.dumps(dict(sorted(bad.properties.items())))
        }


@pytest.mark.parametrize("case", ["a body that is too large", "no session"])
async def test_the_report_is_the_same_for_every_copy(case: str) -> None:
    world = World()
    bad = REJECTED[case]

    for worker in (world.east, world.west):
        await receive_message(worker, delivery(bad.body, bad.properties))

    (once, twice) = halves(world.bus.messages("east", "errors"))
    assert once == twice != []


def halves(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """The first half and the second."""
    middle = len(messages) // 2
    return messages[:middle], messages[middle:]


async def test_a_megabyte_of_properties_is_reported_whole() -> None:
    world = World()
    properties = {f"name {n}": '"\\\u00e9' * 300 for n in range(1_000)}

    await receive_message(world.east, delivery(BODY, properties))

    reports = [json.loads(m.body) for m in world.bus.messages("east", "errors")]
    text = "".join(report.get("properties_text", "") for report in reports)
    assert json.loads(text) == properties
    assert [b64decode(report["body"]) for report in reports if "body" in report] == [BODY]
    assert len({m.id for m in world.bus.messages("east", "errors")}) == len(reports) > 2


async def test_what_no_region_takes_stays_in_its_queue() -> None:
    world = World()
    world.bus.unavailable.update(REGIONS)

    with pytest.raises(OutcomeUnknown):
        await receive_message(world.east, delivery(BODY, {}))


FAULTS = {
    "an unknown type": (replace(message(0), type="account.melt"), "no handler for type"),
    "a body that is not JSON": (replace(message(0), body=b"not json"), "Invalid JSON"),
    "a body that is not the model": (replace(message(0), body=b'{"amount":"x"}'), "amount:"),
    "a body that is no object": (replace(message(0), body=b"[]"), "body:"),
    "a large body of an unknown type": (
        replace(message(0), type="account.melt", body=b'"' + b"x" * (BODY_BYTES_MAX - 2) + b'"'),
        "no handler for type",
    ),
    "a large body of quotes": (
        replace(message(0), body=b'"' * 700_000),
        "Invalid JSON",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_what_no_handler_takes_is_kept_whole_as_a_fault_that_can_be_resolved(
    case: str,
) -> None:
    world = World()
    sent, reason = FAULTS[case]

    await receive_message(world.east, delivery_of(sent))
    await receive_message(world.west, delivery_of(sent))

    (fault,) = world.entries()
    assert (fault["status"], fault["message"]["body"].encode()) == ("faulted", sent.body)
    assert reason in fault["reason"]
    for region in REGIONS:
        (report,) = world.bus.messages(region, "errors")
        assert reason in json.loads(report.body)["reason"]
    assert await world.journal.sessions(SessionNeed.RESOLUTION, limit=9) == ["acc-7"]
    await receive_message(world.east, delivery_of(message(1)))
    await world.east.resolver.resolve(
        "acc-7", ResolutionRequest(ResolutionAction.SKIP, "Ada", "nonsense")
    )
    assert world.amounts() == [2]


@pytest.mark.parametrize("number", [message(0).number, None], ids=["numbered", "un-numbered"])
@pytest.mark.parametrize("region", REGIONS)
async def test_other_content_under_a_used_name_goes_whole_to_the_error_queues(
    region: str, number: Number | None
) -> None:
    world = World()
    sent = replace(message(0), number=number, time="2026-05-28T20:26:40Z")
    other = replace(sent, body=b'{"amount":99}')

    await receive_message(world.east, delivery_of(sent))
    await receive_message(world.worker(region), delivery_of(other))

    assert world.amounts() == [1]
    for to in REGIONS:
        (report,) = (json.loads(m.body) for m in world.bus.messages(to, "errors"))
        assert "was used before with other content" in report["reason"]
        assert b64decode(report["body"]) == other.body


async def test_a_sequence_far_ahead_is_parked_and_stays_visible() -> None:
    world = World()
    far = message(SEQUENCE_MAX, amount=1)

    await receive_message(world.east, delivery_of(far))
    await receive_message(world.west, delivery_of(far))
    await receive_message(world.east, delivery_of(message(0)))

    assert world.clock.now() <= 3 * GAP_SECONDS
    assert world.amounts() == [1]
    assert world.entries()[-1]["parked"] == {"bank": 1}
    assert await world.journal.sessions(SessionNeed.DRAINING, limit=9) == ["acc-7"]
    assert await world.journal.parked("acc-7", far.number) == far  # type: ignore[arg-type]


async def test_a_delivery_is_never_answered_by_the_broker_for_any_of_these() -> None:
    def deliveries() -> list[func.ServiceBusMessage]:
        return [
            *(delivery(bad.body, bad.properties) for bad in REJECTED.values()),
            *(delivery_of(sent) for sent, _ in FAULTS.values()),
        ]

    for arriving in deliveries():
        await receive_message(World().west, arriving)

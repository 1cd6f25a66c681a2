"""A sender sets a body and a session and nothing else: the type of its message gives the id."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import azure.functions as func
import pytest
from azure.functions.servicebus import ServiceBusMessage

from functions.triggers.receive import receive_message
from shared.domain.handler import Context, Handlers
from shared.ports import DeadLetter
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.world import Account, Amount, World, booked

# The virtual clock begins then.
ENQUEUED_AT = datetime.fromtimestamp(EPOCH_SECONDS, UTC)


def book(account: Account, body: Amount, _: Context) -> Account:
    return booked(account, body)


def world_of(id_from: Any = "orderId") -> World:
    handlers = Handlers()
    own: dict[str, Any] = {"state": Account, "body": Amount}
    handlers.register("place", **own, sessions="acc-*", id_from=id_from)(book)
    handlers.register("cancel", **own, sessions="other-*", id_from="orderId")(book)
    return World(handlers=handlers)


def bare(
    body: bytes | dict[str, Any], session: str = "acc-7", **properties: object
) -> func.ServiceBusMessage:
    """A delivery with no attributes but these; its broker gives it an id that says nothing."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ServiceBusMessage(
        body=content,
        application_properties=properties,
        message_id="8f3a",
        session_id=session,
        delivery_count=1,
        sequence_number=0,
        enqueued_time_utc=ENQUEUED_AT,
        user_properties={},
    )


def reasons(world: World) -> list[str]:
    return [json.loads(one.body)["reason"] for one in world.bus.messages("east", "errors")]


async def test_when_both_regions_get_the_same_body_it_has_one_effect() -> None:
    world = world_of()
    for amount in (1, 2):
        for worker in (world.east, world.west, world.east):
            await receive_message(worker, bare({"orderId": f"o-{amount}", "amount": amount}))

    assert world.amounts() == [1, 2]
    assert [e["identities"][0]["id"] for e in world.entries()] == ["o-1", "o-2"]
    assert reasons(world) == []


async def test_when_the_same_id_comes_with_another_body_it_is_rejected_and_not_lost() -> None:
    world = world_of(lambda content: content["order"]["number"])
    await receive_message(world.east, bare({"order": {"number": 5}, "amount": 1}))
    await receive_message(world.west, bare({"order": {"number": 5}, "amount": 9}))

    assert world.amounts() == [1]
    (reason,) = [json.loads(m.body)["reason"] for m in world.bus.messages("west", "errors")]
    assert "other content" in reason


async def test_when_two_types_take_the_same_value_they_are_two_messages() -> None:
    world = world_of()
    world.handlers.register("both", state=Account, body=Amount, sessions="*", id_from="orderId")(
        book
    )
    for kind in ("place", "both"):
        for worker in (world.east, world.west):
            sent = bare({"orderId": "o", "amount": 1}, cloudEvents_type=kind)
            await receive_message(worker, sent)

    assert [e["identities"][0]["type"] for e in world.entries()] == ["place", "both"]
    assert reasons(world) == []
    # Without attributes nothing says now which of the two a body is.
    await receive_message(world.east, bare({"orderId": "o-2", "amount": 1}))
    assert len(reasons(world)) == 1


async def test_when_a_message_has_an_id_of_its_own_the_body_does_not_count() -> None:
    world = world_of()
    attributes = {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "theirs",
        "cloudEvents:type": "place",
        "cloudEvents:partitionkey": "acc-7",
        "cloudEvents:time": ENQUEUED_AT.isoformat(),
    }
    await receive_message(world.east, bare({"orderId": "o", "amount": 1}, **attributes))
    await receive_message(world.east, bare({"orderId": "o", "amount": 2}))

    assert world.amounts() == [1, 2]
    identities = [entry["identities"][0] for entry in world.entries()]
    assert [(one["id"], one.get("source")) for one in identities] == [
        ("theirs", None),
        ("o", "body:place"),
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"amount": 1}, "KeyError: 'orderId'"),
        ({"orderId": None, "amount": 1}, "neither text nor a whole number"),
        ({"orderId": True, "amount": 1}, "neither text nor a whole number"),
        ({"orderId": "", "amount": 1}, "the message id is empty"),
        ({"orderId": "x" * 129, "amount": 1}, "129 characters"),
        (b"[]", "TypeError"),
        (b"no json", "JSONDecodeError"),
    ],
)
async def test_when_the_body_holds_no_id_it_is_reported_with_the_reason(
    body: bytes | dict[str, Any], why: str
) -> None:
    world = world_of()
    await receive_message(world.east, bare(body))

    (reason,) = reasons(world)
    assert why in reason
    assert world.amounts() == []


async def test_when_a_copy_lay_longer_than_ids_are_remembered_it_is_reported() -> None:
    world = world_of()
    await receive_message(world.east, bare({"orderId": "o", "amount": 1}))
    world.clock.seconds += timedelta(days=8).total_seconds()
    await receive_message(world.east, bare({"orderId": "o", "amount": 1}))

    assert world.amounts() == [1]
    assert len(reasons(world)) == 1


async def test_when_no_type_fits_the_session_the_delivery_is_reported_as_before() -> None:
    world = world_of()
    await receive_message(world.east, bare({"orderId": "o", "amount": 1}, "else"))

    (reason,) = reasons(world)
    assert "CloudEvents 1.0 expected" in reason


async def test_when_the_broker_gives_up_on_such_a_message_it_is_known_by_the_same_id() -> None:
    world = world_of()
    body = b'{"orderId":"o","amount":1}'
    letter = DeadLetter("acc-7", {}, body, "too often", is_unbound=False, enqueued_at=ENQUEUED_AT)
    world.bus.dead_letters["west", "in"].append(letter)

    await world.west.dead_letters.sweep()
    await receive_message(world.east, bare(body))

    assert world.amounts() == [1]
    assert reasons(world) == []

"""When an event comes as another SDK writes it, it is the same message in each of its forms."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus.amqp import AmqpMessageBodyType

from functions.triggers.receive import receive_message
from shared.adapters.service_bus import to_dead_letter
from shared.domain import wire
from shared.domain.errors import InvalidMessage
from shared.domain.handler import Context
from shared.domain.message import Number
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.deliveries import delivery
from tests.world import World, message

NOW = datetime.fromtimestamp(EPOCH_SECONDS, UTC).isoformat()
ID = "0f6d1c3a-8f1e-4b7e-9c55-0d7b8f7f4e21"
SENT = replace(message(0), id=ID, time=NOW, reply_to="answers")
NATIVE = dict[str, object](wire.to_properties(SENT))


def in_form(prefix: str = wire.PREFIX, **changed: object) -> dict[str, object]:
    """The properties of the message, under a prefix, some of them in another form."""
    given = {name.removeprefix(wire.PREFIX): value for name, value in NATIVE.items()} | changed
    return {prefix + name: value for name, value in given.items()}


FORMS: Mapping[str, dict[str, object]] = {
    "as Lockstep writes it": NATIVE,
    "with a colon": in_form("cloudEvents:"),
    "with numbers as text": in_form(ownerlevel="0", producersequence="0"),
    "with a time in small letters": in_form(time=NOW.replace("+00:00", "z").replace("T", "t")),
    "with both prefixes": {**NATIVE, **in_form("cloudEvents:", producersequence="0")},
}


@pytest.mark.parametrize("form", FORMS)
def test_when_it_is_read_it_is_the_same_message(form: str) -> None:
    read = wire.from_properties(FORMS[form], SENT.body)

    assert replace(read, time=SENT.time) == SENT
    assert Context(read).now == Context(SENT).now


@pytest.mark.parametrize("is_numbered", [True, False], ids=["numbered", "un-numbered"])
async def test_when_copies_have_several_forms_they_take_effect_once(
    world: World, *, is_numbered: bool
) -> None:
    for form in FORMS.values():
        names = {prefix + name for prefix in wire.PREFIXES for name in wire.NUMBERING}
        given = {name: form[name] for name in form if is_numbered or name not in names}
        for worker in (world.east, world.west):
            await receive_message(worker, delivery(SENT.body, given))

    assert world.amounts() == [1]
    assert world.reports() == []


async def test_when_numbers_are_text_the_order_is_that_of_the_numbers(world: World) -> None:
    for n in (10, *range(10)):
        sent = message(n)
        given = wire.to_properties(sent) | {wire.PREFIX + "producersequence": str(n)}
        await receive_message(world.east, delivery(sent.body, given))

    assert world.amounts() == list(range(1, 12))


def test_when_a_text_is_no_whole_number_as_cloudevents_writes_it_it_is_refused() -> None:
    for text in ("+1", "1.0", " 1", "1 ", "01", "-0x1", "\u0661", "1e3", ""):
        with pytest.raises(InvalidMessage, match="missing or not a whole number"):
            wire.from_properties(in_form(producersequence=text), SENT.body)
    read = wire.from_properties(in_form(producersequence="2147483647"), SENT.body)
    assert read.number == Number("bank", 0, 2_147_483_647)


def test_when_it_comes_in_structured_mode_it_is_refused_by_name() -> None:
    with pytest.raises(InvalidMessage, match="named cloudEvents_… or cloudEvents:…, not spec"):
        wire.from_properties({}, b'{"specversion":"1.0","id":"1","type":"t","source":"s"}')


@pytest.mark.parametrize("prefix", [prefix.encode() for prefix in wire.PREFIXES])
def test_when_the_broker_gave_up_on_it_its_native_values_are_read_as_well(prefix: bytes) -> None:
    # As the SDK gives them: text as bytes, a time as milliseconds.
    given: dict[bytes, object] = {
        prefix + name.removeprefix(wire.PREFIX).encode(): value.encode()
        if isinstance(value, str)
        else value
        for name, value in NATIVE.items()
    }
    moment = datetime.fromisoformat(NOW)
    given |= {prefix + b"time": int(moment.timestamp() * 1_000), prefix + b"id": UUID(ID)}
    received: Any = SimpleNamespace(
        application_properties=given,
        body=[SENT.body],
        body_type=AmqpMessageBodyType.DATA,
        session_id="acc-7",
        dead_letter_reason=None,
        dead_letter_error_description=None,
        enqueued_time_utc=moment,
    )

    letter = to_dead_letter(received)

    assert wire.from_properties(letter.properties, letter.body) == SENT
    assert letter.enqueued_at == moment

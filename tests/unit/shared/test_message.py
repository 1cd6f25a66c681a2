"""What tells messages apart, and how large one is; tests/scenarios has what is no message."""

import pytest

from shared.domain import wire
from shared.domain.errors import InvalidMessage
from shared.domain.message import Message, Number, derive_id, digest_content


def message(**fields: object) -> Message:
    whole = {"id": "m-1", "session": "N14228", "type": "flight.status", "body": b"{}"} | fields
    return Message(**whole)  # type: ignore[arg-type]


def test_a_body_that_no_queue_would_take_is_refused() -> None:
    assert message(body=b"1" * 1_000_000)
    with pytest.raises(InvalidMessage, match="1000001 bytes"):
        message(body=b"1" * 1_000_001)


@pytest.mark.parametrize(
    "fields",
    [
        {"group": "", "level": 0, "sequence": 0},
        {"group": "g", "level": -1, "sequence": 0},
        {"group": "g", "level": 2**15, "sequence": 0},
        {"group": "g", "level": 0, "sequence": -1},
        {"group": "g", "level": 0, "sequence": 2**31},
    ],
)
def test_a_number_out_of_range_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidMessage):
        Number(**fields)  # type: ignore[arg-type]


def test_ids_built_to_collide_do_not() -> None:
    assert derive_id("a_b", "c") != derive_id("a", "b_c")
    assert derive_id("ab", "") != derive_id("a", "b")


def test_the_digest_is_of_type_and_body_alone() -> None:
    one = message(id="m-1", number=Number("g", 0, 1))
    other = message(id="m-2", number=Number("g", 0, 2), time="2013-01-01T05:17:00")

    assert one.digest == other.digest == digest_content("flight.status", b"{}")
    assert one.digest != message(body=b"[]").digest
    assert one.digest != message(type="flight.statu", body=b"s{}").digest


@pytest.mark.parametrize(
    "sent",
    [
        message(),
        message(
            body='{"name":"Zoë"}'.encode(), number=Number("g", 3, 9), time="2013-01-01T05:17:00"
        ),
    ],
    ids=["un-numbered", "numbered"],
)
def test_a_message_survives_the_wire_unchanged(sent: Message) -> None:
    assert wire.from_properties(wire.to_properties(sent), sent.body) == sent

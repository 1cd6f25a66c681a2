"""What a message accepts, and what tells messages apart."""

import pytest

from shared.domain import wire
from shared.domain.errors import InvalidMessage
from shared.domain.message import Message, Number, derive_id, digest_content


def message(**fields: object) -> Message:
    whole = {"id": "m-1", "session": "N14228", "type": "flight.status", "body": b"{}"} | fields
    return Message(**whole)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["id", "session", "type"])
def test_a_message_without_identity_is_refused(field: str) -> None:
    with pytest.raises(InvalidMessage):
        message(**{field: ""})


def test_an_empty_body_is_refused_because_the_host_loses_it() -> None:
    with pytest.raises(InvalidMessage, match="no body"):
        message(body=b"")


def test_a_body_that_no_queue_would_take_is_refused() -> None:
    assert message(body=b"1" * 1_000_000)
    with pytest.raises(InvalidMessage, match="1000001 bytes"):
        message(body=b"1" * 1_000_001)


def test_a_body_that_is_not_text_is_refused_because_the_journal_keeps_text() -> None:
    with pytest.raises(InvalidMessage, match="UTF-8"):
        message(body=b"\xff\xfe")


@pytest.mark.parametrize("field", ["id", "session"])
def test_ids_of_128_characters_are_accepted_and_of_129_refused(field: str) -> None:
    assert getattr(message(**{field: "ü/\\?#" * 25 + "abc"}), field)
    with pytest.raises(InvalidMessage, match="129 characters"):
        message(**{field: "x" * 129})


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


def test_a_message_survives_the_wire_unchanged() -> None:
    sent = message(
        body='{"name":"Zoë"}'.encode(), number=Number("g", 3, 9), time="2013-01-01T05:17:00"
    )

    assert wire.from_properties(wire.to_properties(sent), sent.body) == sent


def test_an_unnumbered_message_survives_the_wire_unchanged() -> None:
    sent = message()

    assert wire.from_properties(wire.to_properties(sent), sent.body) == sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("specversion", "0.3"),
        ("id", None),
        ("partitionkey", 7),
        ("type", None),
        ("ownerlevel", "1"),
        ("producersequence", True),
        ("time", 12),
    ],
)
def test_a_wrong_attribute_is_refused_by_name(name: str, value: object) -> None:
    properties: dict[str, object] = {
        **wire.to_properties(message(number=Number("g", 0, 0), time="2013-01-01"))
    }
    properties[wire.PREFIX + name] = value

    with pytest.raises(InvalidMessage, match=name):
        wire.from_properties(properties, b"{}")

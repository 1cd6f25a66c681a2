"""What tells messages apart, and how large one is; tests/scenarios has what is no message."""

import pytest

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message, Number, digest_content


def message(**fields: object) -> Message:
    whole = {"id": "m-1", "session": "N14228", "type": "flight.status", "body": b"{}"} | fields
    return Message(**whole)  # type: ignore[arg-type]


def test_a_body_that_no_queue_would_take_is_refused() -> None:
    assert message(body=b"1" * 1_000_000)
    with pytest.raises(InvalidMessage, match="1000001 bytes"):
        message(body=b"1" * 1_000_001)


def test_the_digest_is_of_type_and_body_alone() -> None:
    one = message(id="m-1", number=Number("g", 0, 1))
    other = message(id="m-2", number=Number("g", 0, 2), time="2013-01-01T05:17:00")

    assert one.digest == other.digest == digest_content("flight.status", b"{}")
    assert one.digest != message(body=b"[]").digest
    assert one.digest != message(type="flight.statu", body=b"s{}").digest

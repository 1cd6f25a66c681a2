"""HybridRow byte by byte, as Grammar.md and RecordIO.md of Microsoft's HybridRow describe it."""

from zlib import crc32

import pytest

from local.cosmos.http.batches import (
    OperationResult,
    parse_operations,
    write_results,
)
from local.cosmos.responses import BadRequest, RequestRefused

SEGMENT = bytes.fromhex(
    "81 f0d8ff7f"  # version, schema 2147473648
    "01 0a000000"  # its length is there: ten bytes
)
CREATE = bytes.fromhex(
    "81 7054e17f"  # version, schema 2145473648
    "47"  # there are operationType, resourceType, partitionKey and resourceBody
    "00000000 02000000"  # create, of an item
    "06 5b224e30225d"  # ["N0"]
    "0a 7b226964223a2261227d"  # {"id":"a"}
    "03 0c"  # true, minimalReturnPreference
)
REPLACE = bytes.fromhex(
    "81 7054e17f"
    "53"  # there are operationType, resourceType, id and resourceBody
    "05000000 02000000"  # replace, of an item
    "01 61"  # a
    "0a 7b226964223a2261227d"
    "14 09 03 223122"  # a text, ifMatch, "1" with its quotes
)


def record(row: bytes) -> bytes:
    """A record's header: version, schema 2147473649, length and CRC-32; and the row."""
    length, checksum = len(row).to_bytes(4, "little"), crc32(row).to_bytes(4, "little")
    return bytes.fromhex("81 f1d8ff7f") + length + checksum + row


def test_operations_are_read() -> None:
    assert parse_operations(SEGMENT + record(CREATE) + record(REPLACE)) == [
        {
            "operationType": "Create",
            "partitionKey": '["N0"]',
            "resourceBody": {"id": "a"},
            "minimalReturnPreference": True,
        },
        {
            "operationType": "Replace",
            "id": "a",
            "resourceBody": {"id": "a"},
            "ifMatch": '"1"',
        },
    ]


def test_a_segment_may_have_a_comment_and_a_row_a_name_of_its_own() -> None:
    commented = bytes.fromhex("81 f0d8ff7f 01 0e000000 14 02 01 61")
    # A token above the schema's twelve names is a length: 13 + 7 bytes, the name itself.
    named = REPLACE.replace(bytes.fromhex("14 09 03"), b"\x14" + bytes([13 + 7]) + b"ifMatch\x03")

    (operation,) = parse_operations(commented + record(named))

    assert operation["ifMatch"] == '"1"'


def test_a_long_value_has_a_length_of_several_bytes() -> None:
    document = b'{"id":"a","text":"' + b"x" * 300 + b'"}'
    length = bytes([len(document) & 0x7F | 0x80, len(document) >> 7])
    row = bytes.fromhex("81 7054e17f 43 00000000 02000000") + length + document

    (operation,) = parse_operations(SEGMENT + record(row))

    assert operation["resourceBody"]["text"] == "x" * 300


def test_results_are_written() -> None:
    results = [
        OperationResult(201, 6.5, etag='"1"', body='{"id":"a"}'),
        OperationResult(404, 1.0, substatus=1003, message="not found"),
        OperationResult(424, 0.0),
    ]

    created = "81 7154e17f 0d c9000000 00000000 03 223122 0a 7b226964223a2261227d"
    rows = (
        f"{created} 10 06 0000000000001a40",
        "81 7154e17f 03 94010000 eb030000 10 06 000000000000f03f",
        "81 7154e17f 01 a8010000 00000000 10 06 0000000000000000",
    )
    written = b"".join(record(bytes.fromhex(row)) for row in rows)
    assert write_results(results, SEGMENT) == SEGMENT + written


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x81", "ends too early"),
        (record(CREATE), "begins with a segment"),
        (SEGMENT + record(CREATE)[:-1], "ends too early"),
        (SEGMENT + record(CREATE)[:-1] + b"\x0d", "another CRC-32"),
        (SEGMENT + SEGMENT + bytes(3), "records only"),
        (SEGMENT + record(SEGMENT), "not of schema 2145473648"),
        (SEGMENT + record(CREATE[:20]), "ends too early"),
        (SEGMENT + record(CREATE[:14] + b"\xff" * 6), "more than five bytes"),
        (SEGMENT, "no operations"),
        (SEGMENT + record(CREATE.replace(b'{"id":"a"}', b'{"id":"a",')), "JSON"),
        (SEGMENT + record(REPLACE.replace(b"\x01a", b"\x01\xff")), "not UTF-8"),
        (SEGMENT + record(REPLACE.replace(b"\x14\x09", b"\x07\x09")), "has the type 7"),
        # Said to be there by the standard, and not offered here
        (SEGMENT + record(CREATE.replace(b"\x03\x0c", b"\x14\x08\x00")), "'indexingDirective'"),
        (SEGMENT + record(CREATE.replace(b"\x03\x0c", b"\x07\x0bAAAA")), "'timeToLiveInSeconds'"),
        (SEGMENT + record(CREATE.replace(b"\x03\x0c", b"\x01\x0e!")), "'!' in a HybridRow"),
        (SEGMENT + record(CREATE.replace(b"\x00\x02", b"\x00\x01")), "other resources"),
        (SEGMENT + record(CREATE.replace(b"\x47\x00", b"\x47\x03")), "operation 3"),
    ],
)
def test_what_is_damaged_or_not_offered_is_refused_by_name(payload: bytes, reason: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parse_operations(payload)

    assert refused.type is BadRequest or "does not offer" in refused.value.message
    assert reason in refused.value.message

"""Source against journal: each way to disagree is named once, and balanced books name nothing."""

import hashlib
from collections.abc import Iterable, Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.books import ENTRIES, findings
from spark.schemas import EVENTS

pytestmark = pytest.mark.spark

type Cover = tuple[str, str, str, str, int]
type Entry = tuple[str, str, list[Cover]]

BODIES = {number: f'{{"city":"Zürich","n":{number}}}' for number in range(4)}


def source(spark: SparkSession, sessions: Iterable[str]) -> DataFrame:
    """Four events for each session."""
    rows = [
        (session, "flights", n, "flight.status", body, f"id-{n}", "2013-01-01T05:17:00")
        for session in sessions
        for n, body in BODIES.items()
    ]
    return spark.createDataFrame(rows, EVENTS)


def cover(number: int, **changes: object) -> Cover:
    """What an entry says of a message; the digest is worked out independently."""
    digest = hashlib.sha256(b"flight.status\0" + BODIES[number].encode()).hexdigest()
    cells: Mapping[str, object] = {
        "id": f"id-{number}",
        "type": "flight.status",
        "digest": digest,
        "group": "flights",
        "sequence": number,
    } | changes
    return tuple(cells.values())  # type: ignore[return-value]


def entry(position: int, *covers: Cover, status: str = "completed") -> Entry:
    """An entry of a journal."""
    return (f"{position:012d}", status, list(covers))


GOOD = [entry(n, cover(n)) for n in range(4)]
CASES: dict[str, tuple[list[Entry], list[tuple[str, int, str]]]] = {
    "every event once and in order": (GOOD, []),
    "a batch in one entry, and another group's work, are in order": (
        [
            entry(0, cover(0), cover(1)),
            entry(1, cover(0, id="r-0", group="repairs")),
            entry(2, cover(2), cover(3)),
        ],
        [],
    ),
    "a claim is no effect": (
        [*GOOD[:3], entry(3, cover(3), status="working")],
        [("missing", 3, "id-3")],
    ),
    "an event is missing": ([*GOOD[:2], entry(2, cover(3))], [("missing", 2, "id-2")]),
    "an event was skipped": (
        [*GOOD[:3], entry(3, cover(3), status="skipped")],
        [("faulted or skipped", 3, "id-3")],
    ),
    "an effect nobody sent": (
        [*GOOD, entry(4, cover(3, id="stranger", sequence=4))],
        [("extra", 4, "stranger")],
    ),
    "an effect took place twice": (
        [*GOOD, entry(4, cover(3))],
        [("repeated", 3, "id-3")],
    ),
    "two effects changed places": (
        [GOOD[0], entry(1, cover(2)), entry(2, cover(1)), GOOD[3]],
        [("out of order", 1, "id-1")],
    ),
    "the content is another": (
        [*GOOD[:3], entry(3, cover(3, digest="0" * 64))],
        [("different content", 3, "id-3")],
    ),
    "the number is another": (
        [*GOOD[:3], entry(3, cover(3, sequence=7))],
        [("different content", 3, "id-3")],
    ),
}


def test_each_disagreement_is_named_once_and_balanced_books_name_nothing(
    spark: SparkSession,
) -> None:
    journal = [(case, *entry) for case, (entries, _) in CASES.items() for entry in entries]

    rows = findings(
        source(spark, CASES), spark.createDataFrame(journal, ENTRIES), "flights"
    ).collect()

    found: dict[str, list[tuple[str, int, str]]] = {case: [] for case in CASES}
    for row in rows:
        found[row["session"]].append((row["finding"], row["sequence"], row["id"]))
    assert found == {case: expected for case, (_, expected) in CASES.items()}

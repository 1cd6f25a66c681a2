"""Source and journal compared: each kind of difference is found once, and nothing if they agree."""

import hashlib
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from spark.check.reconciliation import find_differences
from spark.read.journal import ENTRIES
from spark.schemas import EVENTS

type Cover = tuple[str, str, str, str, int]
type Halted = tuple[int] | None
type Entry = tuple[str, str, list[Cover], Halted]

# All numbers but the first.
R = range(1, 4)
BODIES = {number: f'{{"city":"Zürich","n":{number}}}' for number in range(4)}


def source(spark: SparkSession, sessions: Iterable[str]) -> DataFrame:
    """Four events for each session."""
    rows = [
        (session, "flights", n, "flight.status", body, f"{session}/{n}", "2013-01-01T05:17:00")
        for session in sessions
        for n, body in BODIES.items()
    ]
    return spark.createDataFrame(rows, EVENTS)


def digest(number: int) -> str:
    """What the journal calls the content of an event, worked out independently."""
    return hashlib.sha256(b"flight.status\0" + BODIES[number].encode()).hexdigest()


def cover(number: int, **changes: object) -> Cover:
    """What an entry says of a message; an id without a session is one of the entry's own."""
    cells: Mapping[str, object] = {
        "id": f"/{number}",
        "type": "flight.status",
        "digest": digest(number),
        "group": "flights",
        "sequence": number,
    } | changes
    return tuple(cells.values())  # type: ignore[return-value]


def entry(
    position: int, *covers: Cover, status: str = "completed", halt: int | None = None
) -> Entry:
    return (f"{position:012d}", status, list(covers), None if halt is None else (halt,))


def in_session(session: str, entry: Entry) -> tuple[str, str, str, list[Cover], Halted]:
    """An entry where it stands, its own ids made whole."""
    position, status, covers, halt = entry
    own = [(session + c[0] if c[0].startswith("/") else c[0], *c[1:]) for c in covers]
    return (session, position, status, own, halt)


GOOD = [entry(n, cover(n)) for n in range(4)]
LOST = "an effect went to another session"
CASES: dict[str, tuple[list[Entry], list[tuple[str, int, str | None]]]] = {
    "every event once and in order": (GOOD, []),
    "a batch in one entry, and another group's work, are in order": (
        [
            entry(0, cover(0), cover(1)),
            entry(1, cover(0, id="r-0", group="repairs")),
            entry(2, cover(2), cover(3)),
        ],
        [],
    ),
    "a fault that was resolved has an effect": (
        [*GOOD[:3], entry(3, cover(3), status="faulted"), entry(4, cover(3))],
        [],
    ),
    "a claim is no effect": (
        [*GOOD[:3], entry(3, cover(3), status="working")],
        [("missing", 3, None)],
    ),
    "an event is missing": ([*GOOD[:2], entry(2, cover(3))], [("missing", 2, None)]),
    "a session is missing": ([], [("missing", n, None) for n in range(4)]),
    "an event was skipped": (
        [*GOOD[:3], entry(3, cover(3), status="skipped")],
        [("faulted or skipped", 3, "skipped at position 3")],
    ),
    "events wait behind a fault": (
        [
            GOOD[0],
            entry(1, cover(1), status="faulted", halt=1),
            entry(2, cover(3), status="parked", halt=1),
        ],
        [
            ("faulted or skipped", 1, "faulted at position 1"),
            ("missing", 2, None),
            ("waiting behind a fault", 3, "parked at position 2, behind the fault at position 1"),
        ],
    ),
    "what was parked is lost after its fault was resolved": (
        [
            GOOD[0],
            entry(1, cover(1), status="faulted", halt=1),
            entry(2, cover(2), status="parked", halt=1),
            entry(3, cover(1)),
            entry(4, cover(2)),
            entry(10, cover(0, id="r-0", group="repairs")),
        ],
        [("missing", 3, None)],
    ),
    "what was parked without a fault waits for nobody": (
        [*GOOD[:2], entry(2, cover(3), status="parked")],
        [("missing", 2, None), ("missing", 3, None)],
    ),
    "what waited was skipped by a person": (
        [
            *GOOD[:2],
            entry(2, cover(2), status="faulted", halt=2),
            entry(3, cover(3), status="parked", halt=2),
            entry(4, cover(3), status="skipped", halt=2),
        ],
        [
            ("faulted or skipped", 2, "faulted at position 2"),
            ("faulted or skipped", 3, "skipped at position 4"),
        ],
    ),
    "an effect nobody sent": (
        [*GOOD, entry(4, cover(3, id="stranger", sequence=4))],
        [("extra", 4, "at position 4")],
    ),
    "an effect nobody sent says nothing about the order of others": (
        [GOOD[0], entry(1, cover(3, id="odd", sequence=9)), *(entry(n + 1, cover(n)) for n in R)],
        [("extra", 9, "at position 1")],
    ),
    "an effect took place twice": ([*GOOD, entry(4, cover(3))], [("repeated", 3, "at position 4")]),
    "an effect took place again, later": (
        [*GOOD, entry(4, cover(1)), entry(5, cover(1))],
        [("repeated", 1, "at position 4"), ("repeated", 1, "at position 5")],
    ),
    LOST: (GOOD[:3], [("missing", 3, None)]),
    "an effect came from another session": (
        [entry(0, cover(3, id=f"{LOST}/3")), *(entry(n + 1, cover(n)) for n in range(4))],
        [("wrong session", 3, f"belongs to session {LOST}")],
    ),
    "two effects changed places": (
        [GOOD[0], entry(1, cover(2)), entry(2, cover(1)), GOOD[3]],
        [("out of order", 1, "at position 2, after number 2")],
    ),
    "the first effect came last": (
        [*(entry(n - 1, cover(n)) for n in R), entry(3, cover(0))],
        [("out of order", 0, "at position 3, after number 3")],
    ),
    "the content is another": (
        [*GOOD[:3], entry(3, cover(3, digest="0" * 64))],
        [("different content", 3, f"digest 00000000..., not {digest(3)[:8]}...")],
    ),
    "the number is another": (
        [*GOOD[:1], entry(1, cover(1, sequence=7)), *GOOD[2:]],
        [("different content", 1, "as number 7")],
    ),
    "another's content, late, twice": (
        [
            GOOD[0],
            GOOD[2],
            entry(3, cover(1, digest="f" * 64)),
            entry(4, cover(1, digest="f" * 64)),
            entry(5, cover(3)),
        ],
        [
            ("different content", 1, f"digest ffffffff..., not {digest(1)[:8]}..."),
            ("different content", 1, f"digest ffffffff..., not {digest(1)[:8]}..."),
            ("out of order", 1, "at position 3, after number 2"),
            ("repeated", 1, "at position 4"),
        ],
    ),
}


def test_each_difference_is_named_once_and_without_any_nothing_is(
    spark: SparkSession,
) -> None:
    journal = [in_session(case, entry) for case, (entries, _) in CASES.items() for entry in entries]

    rows = find_differences(
        source(spark, CASES), spark.createDataFrame(journal, ENTRIES), "flights"
    ).collect()

    found: dict[str, list[tuple[str, int, str | None]]] = {case: [] for case in CASES}
    for row in rows:
        found[row["session"]].append((row["finding"], row["sequence"], row["detail"]))
    assert {case: sorted(each, key=repr) for case, each in found.items()} == {
        case: expected for case, (_, expected) in CASES.items()
    }
    ids = {"an effect nobody sent": "stranger", "an event is missing": "an event is missing/2"}
    for case, identity in ids.items():
        assert [row["id"] for row in rows if row["session"] == case] == [identity]

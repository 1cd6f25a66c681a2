"""Generated tables through the gate: what is accepted arrives, byte for byte as the source says.

What a message must be is worked out here from the cells, without Spark.
"""

import asyncio
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding import FeedConfig, feed
from tests.cloud import running_cloud
from tests.spark.bookings import GROUP, settings
from tests.spark.recording import recorded

KINDS = ("string", "date", "timestamp", "timestamp_ntz")
COLUMNS = {
    "table": "int",
    "row": "int",
    "line": "int",
    "account": "string",
    "kind": "string",
    "at": "string",
    "text": "string",
    "amount": "decimal(12,3)",
    "big": "bigint",
    "flag": "boolean",
    "blob": "binary",
}
MAPPING: dict[str, Any] = {
    "format": "table",
    "columns": COLUMNS,
    "session": "account",
    "key": ["table", "line"],
    "order": ["table", "line"],
    "body": [name for name in COLUMNS if name not in ("account", "kind")],
    "type_column": "kind",
    "time": "at",
}
# So many rows has a table, and so many accounts have the tables that are fed together.
ROWS, ACCOUNTS = 6, 200
READ_AT_ONCE = 32
ODD_TEXTS = (
    *("", " ", "saga:", "saga:x", "lockstep.", "lockstep.y", "$", "here:a", "\x00", "\n", "\u2028"),
    *("0000-01-01", "9999-12-31", "10000-01-01", "2026-W01-1", "20260102", "2026-02-30", "12:30"),
    *("2026-01-02 03:04:05.25", "2026-01-02T03:04:05+25:00", "NaN", "{", '"', "\\", "é", "\ufeff"),
)
CHARACTERS = "aZ09 :.-TZ\t\u0085\u00e9\u4e2d\U0001f6e9\U00010ffff"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# From here on Spark can write a year that Python cannot read.
FAR = 253_402_300_800_000_000

type Arrived = tuple[str, int, str, str, str | None]


@dataclass(frozen=True, slots=True)
class Cells:
    """A row. Its time is text, or so many microseconds since 1970 if the column is a time."""

    table: int
    row: int
    line: int
    account: str | None
    kind: str | None
    at: str | int | None
    text: str | None
    amount: Decimal | None
    big: int | None
    flag: bool | None
    blob: bytes | None
    is_good: bool

    def tell_time(self, kind: str) -> str | None:
        """The time in a body."""
        if not isinstance(self.at, int):
            return self.at
        if self.at >= FAR:
            return "what nobody can read"
        moment = EPOCH + timedelta(microseconds=self.at)
        if kind == "date":
            return moment.date().isoformat()
        spec = "microseconds" if moment.microsecond % 1000 else "milliseconds"
        zone = "Z" if kind == "timestamp" else ""
        return moment.isoformat(timespec=spec).removesuffix("+00:00") + zone

    def tell_body(self, kind: str) -> str:
        """The body, byte for byte."""
        texts = {"text": self.text, "at": self.tell_time(kind)}
        texts["blob"] = None if self.blob is None else b64encode(self.blob).decode()
        said = {name: json.dumps(text, ensure_ascii=False) for name, text in texts.items()}
        said["amount"] = "null" if self.amount is None else f"{self.amount:.3f}"
        for name in ("table", "row", "line", "big", "flag"):
            said[name] = json.dumps(getattr(self, name))
        return "{" + ",".join(f'"{name}":{said[name]}' for name in sorted(said)) + "}"

    def tell(self, kind: str) -> tuple[str | None, str | None, str, str | None]:
        """Session, type, body and time of its message."""
        time = self.tell_time(kind)
        time = time.replace(" ", "T") if time is not None and time.strip(" ") else None
        return self.account, self.kind, self.tell_body(kind), time


def draw_text(random: Random) -> str | None:
    match random.randrange(8):
        case 0:
            return None
        case 1 | 2 | 3:
            return random.choice(ODD_TEXTS)
        case 4:
            # Around the limits of ids and types.
            length = random.choice((64, 65, 127, 128, 129, 255, 256, 257))
            return random.choice("aé\U0001f6e9") * length
        case _:
            return "".join(random.choices(CHARACTERS, k=random.randrange(1, 12)))


def draw_time(random: Random, kind: str, *, is_good: bool) -> str | int | None:
    if kind == "string":
        return "2026-01-02T03:04:05Z" if is_good else draw_text(random)
    moment = random.randrange(4 * 10**15)
    moment -= moment % random.choice((1, 1000, 10**6))
    if kind == "date":
        moment -= moment % (86_400 * 10**6)
    return moment if is_good else random.choice((None, moment, FAR + random.randrange(10**16)))


def draw_table(
    random: Random, number: int, kind: str, accounts: Sequence[str | None]
) -> list[Cells]:
    """A table has some of the columns, and a row of which there is nothing to say against."""
    has = {name: random.random() < 0.5 for name in ("text", "amount", "big", "flag", "blob")}
    found = []
    for place in range(ROWS):
        is_good = place == 0
        cells = Cells(
            number,
            number * ROWS + place,
            9 if is_good else random.randrange(4),
            f"plain-{random.randrange(20)}" if is_good else random.choice(accounts),
            "account.add" if is_good else draw_text(random),
            draw_time(random, kind, is_good=is_good),
            draw_text(random) if has["text"] else None,
            Decimal(random.randrange(-(10**9), 10**9)).scaleb(-3) if has["amount"] else None,
            random.randrange(-(2**63), 2**63) if has["big"] else None,
            random.choice((True, False)) if has["flag"] else None,
            random.randbytes(random.randrange(9)) if has["blob"] else None,
            is_good,
        )
        found.append(cells)
    return found


def tabulate(spark: SparkSession, rows: Iterable[Cells], kind: str) -> DataFrame:
    drawn = [tuple(getattr(row, name) for name in COLUMNS) for row in rows]
    told = COLUMNS if kind == "string" else COLUMNS | {"at": "bigint"}
    table = spark.createDataFrame(drawn, ", ".join(f"{n} {of}" for n, of in told.items()))
    if kind == "string":
        return table
    moment = F.timestamp_micros("at")
    return table.withColumn("at", moment if kind == "timestamp" else moment.cast(kind))


def feed_tables(
    spark: SparkSession, folder: Path, tables: Sequence[list[Cells]], kind: str, **told: Any
) -> tuple[int, int]:
    """Feed tables together; returns how many rows were sent, and how many were rejected."""
    mapping = MAPPING | {"columns": COLUMNS | {"at": kind}}
    options = FeedConfig(GROUP, rejects=str(folder / "rejects"), **told)
    rows = [row for table in tables for row in table]
    found = feed(tabulate(spark, rows, kind), mapping, options)
    files = (folder / "rejects").glob("part-*")
    rejects = [json.loads(line)["reason"] for file in files for line in file.open()]
    counted = sum(found.rows.rejects.values()) + found.sending.standings.get("unsendable", 0)
    assert len(rejects) == counted == len(rows) - found.sending.counts.sent
    return found.sending.counts.sent, counted


def assert_as_the_source_says(
    arrived: Iterable[Arrived], tables: Sequence[list[Cells]], kind: str, seed: int
) -> None:
    """Each message is that of its row, none comes twice, and numbers have no gap."""
    rows = {row.row: row for table in tables for row in table}
    numbers: dict[str, list[int]] = {}
    came: list[int] = []
    for session, number, message_type, body, time in arrived:
        row = rows[json.loads(body)["row"]]
        assert (session, message_type, body, time) == row.tell(kind), seed
        numbers.setdefault(session, []).append(number)
        came.append(row.row)
    assert Counter(came).most_common(1)[0][1] == 1, seed
    assert {row.row for row in rows.values() if row.is_good} <= set(came), seed
    assert all(own == list(range(len(own))) for own in numbers.values()), seed


def draw_tables(random: Random, count: int, kind: str) -> list[list[Cells]]:
    accounts = [draw_text(random) for _ in range(ACCOUNTS)]
    return [draw_table(random, number, kind, accounts) for number in range(count)]


def test_of_a_few_tables_what_is_accepted_is_sent_as_the_source_says(
    spark: SparkSession, recorded_here: None, sink: Path, tmp_path: Path
) -> None:
    seed = Random().randrange(10**9)
    random = Random(seed)
    kind = random.choice(KINDS)
    tables = draw_tables(random, 50, kind)

    sent, rejected = feed_tables(spark, tmp_path, tables, kind, settings=settings(sink))

    assert sent > 0 < rejected, seed
    found = [(m["session"], m["sequence"], m["type"], m["body"], m["time"]) for m in recorded(sink)]
    assert len(found) == sent
    assert_as_the_source_says(found, tables, kind, seed)


@pytest.mark.proof
@pytest.mark.wire
@pytest.mark.parametrize("kind", KINDS)
def test_of_ten_thousand_tables_what_is_accepted_arrives_as_the_source_says(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """2,500 tables of each kind, found in both regions by plain azure-servicebus."""
    seed = Random().randrange(10**9)
    tables = draw_tables(Random(seed), 2_500, kind)
    accounts = sorted({row.account for table in tables for row in table if row.account})
    with running_cloud(tmp_path / "logs") as cloud:
        spaces = {n: each.connection_string for n, each in cloud.namespaces.items()}
        told = {f"ServiceBus_{name}": connection for name, connection in spaces.items()}
        told |= {"Cosmos": cloud.cosmos.connection_string, "LOCKSTEP_REGIONS": ",".join(spaces)}
        told["LOCKSTEP_SECONDARY_DELAY_SECONDS"] = "0"

        sent, rejected = feed_tables(spark, tmp_path, tables, kind, settings=told)

        assert sent > 2_500 < rejected, seed
        for region, connection in spaces.items():
            assert sum(cloud.depths()[region]["lockstep"].values()) == sent
            found = asyncio.run(look_into_queue(connection, accounts))
            assert len(found) == sent
            assert_as_the_source_says(found, tables, kind, seed)


async def look_into_queue(connection: str, sessions: Sequence[str]) -> list[Arrived]:
    """What plain azure-servicebus finds in sessions of the input queue, in the order there."""
    found: list[Arrived] = []
    places = asyncio.Semaphore(READ_AT_ONCE)

    async def look(client: ServiceBusClient, session: str) -> None:
        async with places, client.get_queue_receiver("lockstep", session_id=session) as receiver:
            seen = 0
            while more := await receiver.peek_messages(500, sequence_number=seen + 1):
                found.extend(describe(message) for message in more)
                seen = more[-1].sequence_number or 0

    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        asyncio.TaskGroup() as readers,
    ):
        for session in sessions:
            readers.create_task(look(client, session))
    return found


def describe(message: Any) -> Arrived:
    said = {
        name.decode().removeprefix("cloudEvents_"): value
        for name, value in message.application_properties.items()
    }
    time = said.get("time")
    return (
        message.session_id,
        int(said["producersequence"]),
        said["type"].decode(),
        b"".join(message.body).decode(),
        None if time is None else time.decode(),
    )

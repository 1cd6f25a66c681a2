"""The message store on disk: one SQLite file per namespace, and a write-ahead log beside it.

Promised: what was committed outlives the process, however it ends (SIGKILL included). Not promised:
the loss of power, because nothing waits for the disk at each commit. Locks are not stored: after a
restart every message is free, and the interrupted delivery does not count.

A transaction costs SQLite more than all else that a settlement takes. So the changes of a commit go
to the log first, by one write, and the database takes over those of many commits at once. Each
change overwrites the whole row it is about, so replaying a log that the database has in part
already does no harm.
"""

import json
import marshal
import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from struct import Struct
from zlib import crc32

from local.servicebus.config import QueueConfig, SubscriptionConfig, TopicConfig
from local.servicebus.entities.indexes import SentMessageId
from local.servicebus.entities.store import EntityConfig, MessageStore, SessionState, StoredQueue
from local.servicebus.message import (
    BrokeredMessage,
    DeadLetterReason,
    MessageState,
    StoredMessage,
)
from local.servicebus.rules import SubscriptionRule, decode_rules, encode_rules
from local.sqlite_file import check_format

FORMAT = 1  # PRAGMA user_version of a file with this schema
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS messages (
    queue TEXT, number INTEGER, encoded BLOB, session_id TEXT, time_to_live REAL,
    scheduled_for REAL, enqueued_at REAL, expires_at REAL, state TEXT, delivery_count INTEGER,
    set_aside INTEGER, is_dead INTEGER, reason TEXT, description TEXT,
    PRIMARY KEY (queue, number));
CREATE TABLE IF NOT EXISTS numbers (queue TEXT PRIMARY KEY, last INTEGER);
CREATE TABLE IF NOT EXISTS session_states (
    queue TEXT, session_id TEXT, state BLOB, PRIMARY KEY (queue, session_id));
CREATE TABLE IF NOT EXISTS session_state_times (
    queue TEXT, session_id TEXT, at REAL, PRIMARY KEY (queue, session_id));
CREATE TABLE IF NOT EXISTS seen (
    queue TEXT, message_id TEXT, at REAL, number INTEGER, PRIMARY KEY (queue, message_id));
CREATE TABLE IF NOT EXISTS rules (subscription TEXT PRIMARY KEY, encoded BLOB);
CREATE TABLE IF NOT EXISTS declarations (entity TEXT PRIMARY KEY, declaration TEXT);
PRAGMA user_version = {FORMAT};
"""
SAVE_MESSAGE = f"INSERT OR REPLACE INTO messages VALUES ({','.join('?' * 14)})"  # noqa: S608
DELETE_MESSAGE = "DELETE FROM messages WHERE queue=? AND number=?"
SAVE_NUMBER = "INSERT OR REPLACE INTO numbers VALUES (?, ?)"
SAVE_STATE = "INSERT OR REPLACE INTO session_states VALUES (?, ?, ?)"
DELETE_STATE = "DELETE FROM session_states WHERE queue=? AND session_id=?"
# A table of its own, which a file from before it has not; the time of a state there is 1970.
SAVE_STATE_TIME = "INSERT OR REPLACE INTO session_state_times VALUES (?, ?, ?)"
DELETE_STATE_TIME = "DELETE FROM session_state_times WHERE queue=? AND session_id=?"
LOAD_STATES = """
SELECT session_id, state, coalesce(at, 0.0) FROM session_states
LEFT JOIN session_state_times USING (queue, session_id) WHERE queue=?
"""
SAVE_SENT_ID = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)"
DELETE_SENT_ID = "DELETE FROM seen WHERE queue=? AND message_id=?"
SAVE_DECLARATION = "INSERT OR REPLACE INTO declarations VALUES (?, ?)"
FORGET = tuple(
    f"DELETE FROM {table} WHERE {column}=?"  # noqa: S608
    for table, column in (
        ("messages", "queue"),
        ("numbers", "queue"),
        ("session_states", "queue"),
        ("session_state_times", "queue"),
        ("seen", "queue"),
        ("rules", "subscription"),
    )
)
SAVE_RULES = "INSERT OR REPLACE INTO rules VALUES (?, ?)"
# How much the log may hold. Then the database takes over: a pause of about ten milliseconds.
LOG_ROWS_MAX = 2000
LOG_BYTES_MAX = 4 * 1024 * 1024

LOG_RECORD = Struct("<II")  # bytes of the changes that follow, and their checksum
MARSHAL_FORMAT = 4

type SqlValue = str | bytes | int | float | None
type RowChange = tuple[str, tuple[SqlValue, ...]]  # a statement with its values


class SqliteMessageStore(MessageStore):
    """A store for one namespace, used by one thread."""

    def __init__(self, path: Path) -> None:
        """Open the file, or begin a new one; the folder is made if it is missing.

        Raises ForeignFile for one of another version.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self._db = sqlite3.connect(path)
        check_format(self._db, path, FORMAT)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(SCHEMA)
        self._numbers: dict[str, int] = {}  # given out since the last commit
        self._rows: dict[tuple[str | int, ...], RowChange] = {}  # the last change of each row
        self._log = WriteAheadLog(path.with_suffix(".pending"))
        logged = self._log.read()
        self._apply([] if is_new else logged)  # the log of a database that was removed is void

    def load(self, queue: str) -> StoredQueue:
        rows = self._db.execute("SELECT * FROM messages WHERE queue=? ORDER BY number", (queue,))
        messages = tuple(read_row(row) for row in rows)
        last = self._db.execute("SELECT last FROM numbers WHERE queue=?", (queue,)).fetchone()
        states = self._db.execute(LOAD_STATES, (queue,))
        sent_query = "SELECT message_id, at, number FROM seen WHERE queue=? ORDER BY at"
        sent = self._db.execute(sent_query, (queue,))
        return StoredQueue(
            0 if last is None else last[0],
            messages,
            {session_id: SessionState(content, at) for session_id, content, at in states},
            tuple(SentMessageId(*row) for row in sent),
        )

    def save_message(self, queue: str, stored: StoredMessage) -> None:
        message, reason = stored.message, stored.dead_letter or DeadLetterReason()
        self._change(
            ("messages", queue, stored.sequence_number),
            SAVE_MESSAGE,
            queue,
            stored.sequence_number,
            message.encoded,
            message.session_id,
            message.time_to_live_seconds,
            message.scheduled_for,
            stored.enqueued_at,
            stored.expires_at,
            stored.state.value,
            stored.delivery_count,
            stored.was_deferred,
            stored.dead_letter is not None,
            reason.reason,
            reason.description,
        )

    def delete_message(self, queue: str, sequence_number: int) -> None:
        row = ("messages", queue, sequence_number)
        self._change(row, DELETE_MESSAGE, queue, sequence_number)

    def save_last_sequence_number(self, queue: str, number: int) -> None:
        self._numbers[queue] = number

    def save_session_state(self, queue: str, session_id: str, state: SessionState | None) -> None:
        row, time = (("session_states", queue, session_id), ("state_times", queue, session_id))
        if state is None:
            self._change(row, DELETE_STATE, queue, session_id)
            self._change(time, DELETE_STATE_TIME, queue, session_id)
        else:
            self._change(row, SAVE_STATE, queue, session_id, state.content)
            self._change(time, SAVE_STATE_TIME, queue, session_id, state.updated_at)

    def save_sent_id(self, queue: str, sent: SentMessageId) -> None:
        row = ("seen", queue, sent.message_id)
        self._change(row, SAVE_SENT_ID, queue, sent.message_id, sent.at, sent.sequence_number)

    def delete_sent_id(self, queue: str, message_id: str) -> None:
        self._change(("seen", queue, message_id), DELETE_SENT_ID, queue, message_id)

    def load_rules(self, subscription: str) -> list[SubscriptionRule] | None:
        query = "SELECT encoded FROM rules WHERE subscription=?"
        row = self._db.execute(query, (subscription,)).fetchone()
        return None if row is None else decode_rules(row[0])

    def save_rules(self, subscription: str, rules: Sequence[SubscriptionRule]) -> None:
        self._change(("rules", subscription), SAVE_RULES, subscription, encode_rules(rules))

    def load_declarations(self) -> dict[str, EntityConfig | None]:
        rows = self._db.execute("SELECT entity, declaration FROM declarations").fetchall()
        return {entity: None if text is None else read_declaration(text) for entity, text in rows}

    def save_declaration(self, entity: str, declaration: EntityConfig | None) -> None:
        text = None if declaration is None else write_declaration(declaration)
        self._change(("declarations", entity), SAVE_DECLARATION, entity, text)

    def forget(self, queue: str) -> None:
        self._numbers.pop(queue, None)
        for statement in FORGET:
            self._change((statement, queue), statement, queue)
        self.commit()
        self._apply(self._rows.values())  # who makes it anew loads from the database

    def commit(self) -> None:
        for queue, last in self._numbers.items():
            self._change(("numbers", queue), SAVE_NUMBER, queue, last)
        self._numbers.clear()
        self._log.write()
        if len(self._rows) > LOG_ROWS_MAX or self._log.size > LOG_BYTES_MAX:
            self._apply(self._rows.values())

    def close(self) -> None:
        self.commit()
        self._apply(self._rows.values())
        self._db.close()
        self._log.close()

    def _change(self, row: tuple[str | int, ...], statement: str, *values: SqlValue) -> None:
        self._log.add((statement, values))
        self._rows[row] = (statement, values)

    def _apply(self, changes: Iterable[RowChange]) -> None:
        """Let the database commit what is in the log, and empty the log."""
        with self._db:
            for statement, values in changes:
                self._db.execute(statement, values)
        self._rows.clear()
        self._log.clear()


class WriteAheadLog:
    """A file of changes, used by one thread; what was written outlives the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._unwritten: list[bytes] = []
        self.size = 0  # bytes of whole records

    def read(self) -> list[RowChange]:
        """Return what is in the file, in order; a last record that was cut off does not count."""
        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        changes: list[RowChange] = []
        self.size = 0
        while len(data) - self.size >= LOG_RECORD.size:
            length, checksum = LOG_RECORD.unpack_from(data, self.size)
            end = self.size + LOG_RECORD.size + length
            body = data[self.size + LOG_RECORD.size : end]
            if len(body) < length or crc32(body) != checksum:
                break
            stream = BytesIO(body)
            while stream.tell() < length:
                changes.append(marshal.load(stream))  # noqa: S302 - our own, and its checksum is right
            self.size = end
        return changes

    def add(self, change: RowChange) -> None:
        """Keep a change to write with the next record; raises ValueError if it cannot be."""
        self._unwritten.append(marshal.dumps(change, MARSHAL_FORMAT))

    def write(self) -> None:
        """Write what was added, all or nothing; raises OSError when there is no room for it yet."""
        if not self._unwritten:
            return
        body = b"".join(self._unwritten)
        left = memoryview(LOG_RECORD.pack(len(body), crc32(body)) + body)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self._unwritten.clear()
        self.size += LOG_RECORD.size + len(body)

    def clear(self) -> None:
        os.ftruncate(self._file, 0)
        self.size = 0

    def close(self) -> None:
        os.close(self._file)


def read_row(row: tuple[object, ...]) -> StoredMessage:
    """A row as a message that nobody has locked."""
    match row:
        case (
            str(),
            int(number),
            bytes(encoded),
            str() | None as session_id,
            float() | None as time_to_live,
            float() | None as scheduled_for,
            float(enqueued_at),
            float() | None as expires_at,
            str(state),
            int(delivery_count),
            int(was_deferred),
            int(is_dead_letter),
            str() | None as reason,
            str() | None as description,
        ):
            unlocked = MessageState.DEFERRED if was_deferred else MessageState.ACTIVE
            return StoredMessage(
                number,
                BrokeredMessage(encoded, session_id, time_to_live, scheduled_for),
                enqueued_at,
                state=unlocked if state == MessageState.LOCKED else MessageState(state),
                expires_at=expires_at,
                delivery_count=delivery_count,
                was_deferred=bool(was_deferred),
                dead_letter=DeadLetterReason(reason, description) if is_dead_letter else None,
            )
    raise ValueError(f"not a stored message: {row!r}")


def write_declaration(declaration: EntityConfig) -> str:
    """A declaration as JSON; the rules of a subscription are stored by themselves."""
    if isinstance(declaration, SubscriptionConfig):
        return json.dumps({"subscription": asdict(declaration.queue)})
    kind = "queue" if isinstance(declaration, QueueConfig) else "topic"
    return json.dumps({kind: asdict(declaration)})


def read_declaration(text: str) -> EntityConfig:
    [(kind, values)] = json.loads(text).items()
    match kind:
        case "queue":
            return QueueConfig(**values)
        case "topic":
            return TopicConfig(**values | {"subscriptions": ()})
    return SubscriptionConfig(QueueConfig(**values))

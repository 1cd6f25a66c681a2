"""The ledger on disk: one SQLite file per namespace, and beside it what is pending.

Promised: what was committed outlives the process, however it ends (SIGKILL included). Not promised:
the loss of power, because nothing waits for the disk at each commit. Locks are not kept: after a
restart every message is free, and the interrupted delivery does not count.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from local.servicebus.duplicates import Seen
from local.servicebus.ledger import Kept
from local.servicebus.message import DeadLetter, Message, State, StoredMessage
from local.servicebus.pending import Change, Pending, Value
from local.servicebus.rules import Rule
from local.servicebus.rules_wire import decode_rules, encode_rules
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
CREATE TABLE IF NOT EXISTS seen (
    queue TEXT, message_id TEXT, at REAL, number INTEGER, PRIMARY KEY (queue, message_id));
CREATE TABLE IF NOT EXISTS rules (subscription TEXT PRIMARY KEY, encoded BLOB);
PRAGMA user_version = {FORMAT};
"""
FORGET = "DELETE FROM messages WHERE queue=? AND number=?"
NUMBER = "INSERT OR REPLACE INTO numbers VALUES (?, ?)"
KEEP_STATE = "INSERT OR REPLACE INTO session_states VALUES (?, ?, ?)"
CLEAR_STATE = "DELETE FROM session_states WHERE queue=? AND session_id=?"
REMEMBER = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)"
UNREMEMBER = "DELETE FROM seen WHERE queue=? AND message_id=?"
KEEP_RULES = "INSERT OR REPLACE INTO rules VALUES (?, ?)"
KEEP = f"INSERT OR REPLACE INTO messages VALUES ({','.join('?' * 14)})"  # noqa: S608 - placeholders
# So much may be pending. Then the database commits: a pause of about ten milliseconds.
ROWS_MAX = 2000
BYTES_MAX = 4 * 1024 * 1024


class Store:
    """A ledger for one namespace, used by one thread."""

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
        self._rows: dict[tuple[str | int, ...], Change] = {}  # the last of each row
        self._pending = Pending(path.with_suffix(".pending"))
        pending = self._pending.read()
        self._make([] if is_new else pending)  # what is left of a file that was removed is not kept

    def load(self, queue: str) -> Kept:
        """What was kept of the queue, in the order of sequence numbers."""
        rows = self._db.execute("SELECT * FROM messages WHERE queue=? ORDER BY number", (queue,))
        messages = tuple(read_row(row) for row in rows)
        last = self._db.execute("SELECT last FROM numbers WHERE queue=?", (queue,)).fetchone()
        states = self._db.execute(
            "SELECT session_id, state FROM session_states WHERE queue=?", (queue,)
        )
        seen = self._db.execute(
            "SELECT message_id, at, number FROM seen WHERE queue=? ORDER BY at", (queue,)
        )
        return Kept(
            0 if last is None else last[0],
            messages,
            dict(states.fetchall()),
            tuple(Seen(*row) for row in seen),
        )

    def keep(self, queue: str, stored: StoredMessage) -> None:
        """Record a message as it now is."""
        row = ("messages", queue, stored.sequence_number)
        self._change(row, KEEP, *write_row(queue, stored))

    def forget(self, queue: str, sequence_number: int) -> None:
        """Record that a message has left the queue."""
        self._change(("messages", queue, sequence_number), FORGET, queue, sequence_number)

    def number(self, queue: str, last_sequence_number: int) -> None:
        """Record the last sequence number given out."""
        self._numbers[queue] = last_sequence_number

    def keep_session_state(self, queue: str, session_id: str, state: bytes | None) -> None:
        """Record a session's state; None clears it."""
        row = ("session_states", queue, session_id)
        if state is None:
            self._change(row, CLEAR_STATE, queue, session_id)
        else:
            self._change(row, KEEP_STATE, queue, session_id, state)

    def remember(self, queue: str, seen: Seen) -> None:
        """Record that a message id was sent."""
        row = ("seen", queue, seen.message_id)
        self._change(row, REMEMBER, queue, seen.message_id, seen.at, seen.sequence_number)

    def unremember(self, queue: str, message_id: str) -> None:
        """Record that a message id may be sent again."""
        self._change(("seen", queue, message_id), UNREMEMBER, queue, message_id)

    def load_rules(self, subscription: str) -> list[Rule] | None:
        """The rules as clients left them; None if they never changed the declared ones."""
        row = self._db.execute(
            "SELECT encoded FROM rules WHERE subscription=?", (subscription,)
        ).fetchone()
        return None if row is None else decode_rules(row[0])

    def keep_rules(self, subscription: str, rules: Sequence[Rule]) -> None:
        """Record all rules of a subscription, in their order."""
        self._change(("rules", subscription), KEEP_RULES, subscription, encode_rules(rules))

    def commit(self) -> None:
        """Make everything recorded so far outlive the process."""
        for queue, last in self._numbers.items():
            self._change(("numbers", queue), NUMBER, queue, last)
        self._numbers.clear()
        self._pending.write()
        if len(self._rows) > ROWS_MAX or self._pending.size > BYTES_MAX:
            self._make(self._rows.values())

    def close(self) -> None:
        """Commit and close the files."""
        self.commit()
        self._make(self._rows.values())
        self._db.close()
        self._pending.close()

    def _change(self, row: tuple[str | int, ...], statement: str, *values: Value) -> None:
        self._pending.add((statement, values))
        self._rows[row] = (statement, values)

    def _make(self, changes: Iterable[Change]) -> None:
        """Let the database commit what is pending."""
        with self._db:
            for statement, values in changes:
                self._db.execute(statement, values)
        self._rows.clear()
        self._pending.clear()


def write_row(queue: str, stored: StoredMessage) -> tuple[Value, ...]:
    """A message as a row."""
    message, dead_letter = stored.message, stored.dead_letter
    return (
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
        stored.set_aside,
        dead_letter is not None,
        None if dead_letter is None else dead_letter.reason,
        None if dead_letter is None else dead_letter.description,
    )


def read_row(row: tuple[object, ...]) -> StoredMessage:
    """A row as a message that nobody holds."""
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
            int(set_aside),
            int(is_dead),
            str() | None as reason,
            str() | None as description,
        ):
            free = State.DEFERRED if set_aside else State.ACTIVE
            return StoredMessage(
                number,
                Message(encoded, session_id, time_to_live, scheduled_for),
                enqueued_at,
                state=State(state) if state != State.LOCKED else free,
                expires_at=expires_at,
                delivery_count=delivery_count,
                set_aside=bool(set_aside),
                dead_letter=DeadLetter(reason, description) if is_dead else None,
            )
    raise ValueError(f"not a kept message: {row!r}")

"""The SQLite file under an account: one connection, one writer.

Every call runs to its end on the caller's thread, and a service calls from one thread only; so a
transaction is isolated because nothing else can run inside it. With a file, the journal mode is
WAL: what was answered survives the death of the process, though not a loss of power.
"""

import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.sqlite_file import check_format

FORMAT = 1  # PRAGMA user_version of a file with this schema
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS databases (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS containers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    database INTEGER NOT NULL REFERENCES databases ON DELETE CASCADE,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    properties TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    UNIQUE (database, name)
);
CREATE TABLE IF NOT EXISTS items (
    version INTEGER PRIMARY KEY,
    container INTEGER NOT NULL REFERENCES containers ON DELETE CASCADE,
    pkrange INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    partition TEXT NOT NULL,
    id TEXT NOT NULL,
    birth INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    expires INTEGER,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS items_by_id ON items (container, partition, id);
CREATE INDEX IF NOT EXISTS items_by_change ON items (container, pkrange, lsn);
CREATE INDEX IF NOT EXISTS items_by_birth ON items (container, pkrange, birth);
CREATE INDEX IF NOT EXISTS items_of_a_partition ON items (container, partition, birth);
CREATE INDEX IF NOT EXISTS items_by_time ON items (container, ts, birth);
CREATE INDEX IF NOT EXISTS items_by_expiry ON items (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS newest (
    container INTEGER NOT NULL,
    pkrange INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (container, pkrange)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS account (write_region TEXT NOT NULL);
PRAGMA user_version = {FORMAT};
"""
COLUMNS = "version, container, pkrange, lsn, partition, id, birth, ts, expires, body"
BEGIN_HISTORY = """
CREATE TEMP TABLE past AS SELECT *, 0 AS ended FROM main.items WHERE 0;
CREATE INDEX temp.past_by_end ON past (ended);
CREATE TEMP TRIGGER keep_in_past BEFORE DELETE ON main.items BEGIN
    INSERT INTO past SELECT *, newest_version() FROM main.items WHERE version = OLD.version;
END;
"""
END_HISTORY = "DROP TRIGGER temp.keep_in_past; DROP TABLE temp.past;"


@dataclass(frozen=True, slots=True)
class AccountSnapshot:
    """The account after a write: the second, the newest version, and the newest LSNs.

    LSNs are by the number of a container and that of a physical partition.
    """

    seconds: float
    version: int
    lsns: Mapping[tuple[int, int], int]


class VersionHistory:
    """Snapshots, with the versions that a read of each of them needs, for reads that are stale.

    Nothing is kept, and writes cost nothing more, until `keep` is called. From then on versions
    that are replaced or deleted go to a table of their own, and a view in front of the items shows
    what was there at some time: while it exists, the connection takes it for the table `items`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.snapshots: deque[AccountSnapshot] = deque()
        self._seconds = 0.0

    def keep(self, seconds: float | None, take_snapshot: Callable[[], AccountSnapshot]) -> None:
        """Keep versions that end from now on for at least so many seconds; None drops all."""
        if seconds is None:
            if self.snapshots:
                self._connection.executescript(END_HISTORY)
                self.snapshots.clear()
            return
        if not self.snapshots:
            self._connection.executescript(BEGIN_HISTORY)
            self.snapshots.append(take_snapshot())
            self._seconds = 0.0
        self._seconds = max(seconds, self._seconds)

    def add(self, snapshot: AccountSnapshot) -> None:
        """Take up the snapshot after a write, and drop those that are too old."""
        self.snapshots.append(snapshot)
        horizon = snapshot.seconds - self._seconds
        while len(self.snapshots) > 1 and self.snapshots[1].seconds <= horizon:
            self.snapshots.popleft()
        oldest = self.snapshots[0].version
        self._connection.execute("DELETE FROM temp.past WHERE ended <= ?", (oldest,))

    def find(self, seconds: float) -> AccountSnapshot:
        """The last snapshot until that time, or the oldest one."""
        until = (one for one in reversed(self.snapshots) if one.seconds <= seconds)
        return next(until, self.snapshots[0])

    @contextmanager
    def show(self, snapshot: AccountSnapshot) -> Iterator[None]:
        """Let all that reads items within the block find what was there at the snapshot."""
        version = snapshot.version
        self._connection.execute(
            f"CREATE TEMP VIEW items AS SELECT {COLUMNS} FROM main.items"  # noqa: S608 - our own text
            f" WHERE version <= {version} UNION ALL"
            f" SELECT {COLUMNS} FROM temp.past WHERE version <= {version} AND ended > {version}"
        )
        try:
            yield
        finally:
            self._connection.execute("DROP VIEW temp.items")


def read_text(body: str, name: str) -> str:
    """Return the text of a property, which SQLite would read up to its first NUL alone."""
    return str(json.loads(body)[name])


class Storage:
    """An open database file, or memory; also the source of numbers.

    Each version of an item has one in the whole account, given once. Each physical partition counts
    its transactions: their log sequence numbers (LSN) never fall, not even over a restart, and all
    writes of one transaction have the same. `clock` says when a snapshot was.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        target = ":memory:" if path is None else str(path)
        self.connection = sqlite3.connect(target, isolation_level=None, check_same_thread=False)
        check_format(self.connection, path, FORMAT)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        # With them REPLACE fires the delete trigger that keeps old versions.
        self.connection.execute("PRAGMA recursive_triggers = ON")
        self.connection.executescript(SCHEMA)
        self.connection.create_function("newest_version", 0, lambda: self.version)
        self.connection.create_function("text_at", 2, read_text, deterministic=True)
        self._clock = clock
        rows = self.connection.execute("SELECT container, pkrange, lsn FROM newest")
        self._lsns: dict[tuple[int, int], int] = {row[:2]: row[2] for row in rows}
        row = self.connection.execute("SELECT max(version) FROM newest").fetchone()
        self.version: int = row[0] or 0  # of the newest write, deletes included
        self._written: tuple[int, int] | None = None
        self._history = VersionHistory(self.connection)
        self._shown: AccountSnapshot | None = None

    def find_lsn(self, container: int, pkrange: int) -> int:
        """The number of the newest transaction in a physical partition."""
        lsns = self._lsns if self._shown is None else self._shown.lsns
        return lsns.get((container, pkrange), 0)

    def take_version(self) -> int:
        """Take the next number; one that a failed transaction took is given again."""
        self.version += 1
        return self.version

    def take_lsn(self, container: int, pkrange: int) -> int:
        """The number of the transaction in which this is called, which has one partition only."""
        self._written = (container, pkrange)
        return self._lsns.get(self._written, 0) + 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply everything inside the block, or nothing when it raises."""
        before, self._written = self.version, None
        lsn = 0
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._written is not None:
                lsn = self._lsns.get(self._written, 0) + 1
                self.connection.execute(
                    "INSERT OR REPLACE INTO newest VALUES (?, ?, ?, ?)",
                    (*self._written, lsn, self.version),
                )
        except BaseException:
            self.connection.execute("ROLLBACK")
            self.version = before
            raise
        self.connection.execute("COMMIT")
        if self._written is not None:
            self._lsns[self._written] = lsn
            if self._history.snapshots:
                self._history.add(self._take_snapshot())

    def purge(self, now: int) -> None:
        expired = "DELETE FROM items WHERE expires IS NOT NULL AND expires <= ?"
        with self.transaction():
            self.connection.execute(expired, (now,))

    def keep_versions(self, seconds: float | None) -> None:
        """Keep the versions of the last `seconds`, from now on; None drops them."""
        self._history.keep(seconds, self._take_snapshot)

    @contextmanager
    def show_past(self, seconds: float) -> Iterator[None]:
        """Let reads within the block find the state of so long ago, if that is still kept."""
        self._shown = self._history.find(self._clock() - seconds)
        try:
            with self._history.show(self._shown):
                yield
        finally:
            self._shown = None

    def _take_snapshot(self) -> AccountSnapshot:
        return AccountSnapshot(self._clock(), self.version, dict(self._lsns))

    @property
    def write_region(self) -> str | None:
        row = self.connection.execute("SELECT write_region FROM account").fetchone()
        return row[0] if row else None

    def store_write_region(self, name: str) -> None:
        with self.transaction():
            self.connection.execute("DELETE FROM account")
            self.connection.execute("INSERT INTO account VALUES (?)", (name,))

    def close(self) -> None:
        """Close the file; the log is folded into it."""
        self.connection.close()

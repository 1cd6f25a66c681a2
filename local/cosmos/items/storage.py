"""The SQLite file under an account: one connection, one writer.

Every call runs to its end on the caller's thread, and a service calls from one thread only; so a
transaction is isolated because nothing else can run inside it. With a file, the journal mode is
WAL: what was answered survives the death of the process, though not a loss of power.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from local.cosmos.regions.stale_reads import Moment, Past
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


class Storage:
    """An open database file, or memory; also the source of numbers.

    Each version of an item has one in the whole account, given once. Each physical partition counts
    its transactions: their log sequence numbers (LSN) never fall, not even over a restart, and all
    writes of one transaction have the same. `clock` says when a moment of the past was.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        target = ":memory:" if path is None else str(path)
        self.connection = sqlite3.connect(target, isolation_level=None, check_same_thread=False)
        check_format(self.connection, path, FORMAT)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("PRAGMA recursive_triggers = ON")  # a replaced row is a deleted one
        self.connection.executescript(SCHEMA)
        self.connection.create_function("newest_version", 0, lambda: self._version)
        self._clock = clock
        self._lsns = self._newest_lsns()
        self._version = self._newest_version()
        self._written: tuple[int, int] | None = None
        self._past = Past(self.connection)
        self._shown: Moment | None = None

    @property
    def version(self) -> int:
        """The newest number of a version: how many writes there were, deletes included."""
        return self._version

    def lsn(self, container: int, pkrange: int) -> int:
        """The number of the newest transaction in a physical partition."""
        lsns = self._lsns if self._shown is None else self._shown.lsns
        return lsns.get((container, pkrange), 0)

    def next_version(self) -> int:
        """Take the next number; one that a failed transaction took is given again."""
        self._version += 1
        return self._version

    def next_lsn(self, container: int, pkrange: int) -> int:
        """The number of the transaction in which this is called, which has one partition only."""
        self._written = (container, pkrange)
        return self._lsns.get(self._written, 0) + 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is applied, or, when the block raises, nothing."""
        before, self._written = self._version, None
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            lsn = self._keep_lsn()
        except BaseException:
            self.connection.execute("ROLLBACK")
            self._version = before
            raise
        self.connection.execute("COMMIT")
        if self._written is not None:
            self._lsns[self._written] = lsn
            if self._past.is_kept:
                self._past.note(self._moment())

    def remember(self, reach: float | None) -> None:
        """Keep the past of the last `reach` seconds, from now on; None lets go of it."""
        if reach is None:
            if self._past.is_kept:
                self._past.end()
        elif self._past.is_kept:
            self._past.extend(reach)
        else:
            self._past.begin(self._moment(), reach)

    @contextmanager
    def seen_late(self, seconds: float) -> Iterator[None]:
        """Within the block reads find the state of so long ago, if that is still remembered."""
        self._shown = self._past.moment(self._clock() - seconds)
        try:
            with self._past.shown(self._shown):
                yield
        finally:
            self._shown = None

    @property
    def write_region(self) -> str | None:
        """The region that takes writes, as it was kept; None in a new file."""
        row = self.connection.execute("SELECT write_region FROM account").fetchone()
        return row[0] if row else None

    def keep_write_region(self, name: str) -> None:
        """Keep which region takes writes."""
        with self.transaction():
            self.connection.execute("DELETE FROM account")
            self.connection.execute("INSERT INTO account VALUES (?)", (name,))

    def close(self) -> None:
        """Close the file; the log is folded into it."""
        self.connection.close()

    def _keep_lsn(self) -> int:
        """Keep the numbers a transaction took with what it wrote; the answer is its own."""
        if self._written is None:
            return 0
        lsn = self._lsns.get(self._written, 0) + 1
        self.connection.execute(
            "INSERT OR REPLACE INTO newest VALUES (?, ?, ?, ?)",
            (*self._written, lsn, self._version),
        )
        return lsn

    def _moment(self) -> Moment:
        return Moment(self._clock(), self._version, dict(self._lsns))

    def _newest_lsns(self) -> dict[tuple[int, int], int]:
        rows = self.connection.execute("SELECT container, pkrange, lsn FROM newest")
        return {(container, pkrange): lsn for container, pkrange, lsn in rows}

    def _newest_version(self) -> int:
        row = self.connection.execute("SELECT max(version) FROM newest").fetchone()
        return row[0] or 0

"""The SQLite file under an account: one connection, one writer.

Every call runs to its end on the caller's thread, and a service calls from one thread only; so a
transaction is isolated because nothing else can run inside it. With a file, the journal mode is
WAL: what was answered survives the death of the process, though not a loss of power.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCHEMA = """
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
    UNIQUE (database, name)
);
CREATE TABLE IF NOT EXISTS items (
    lsn INTEGER PRIMARY KEY AUTOINCREMENT,
    container INTEGER NOT NULL REFERENCES containers ON DELETE CASCADE,
    partition TEXT NOT NULL,
    id TEXT NOT NULL,
    birth INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    expires INTEGER,
    body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS items_by_id ON items (container, partition, id);
CREATE INDEX IF NOT EXISTS items_by_change ON items (container, lsn);
CREATE INDEX IF NOT EXISTS items_by_expiry ON items (expires) WHERE expires IS NOT NULL;
"""


class Storage:
    """An open database file, or memory; also the source of log sequence numbers (LSN)."""

    def __init__(self, path: Path | None = None) -> None:
        target = ":memory:" if path is None else str(path)
        self.connection = sqlite3.connect(target, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.executescript(SCHEMA)
        self._lsn = self._last_lsn()

    @property
    def lsn(self) -> int:
        """The number of the newest change; it never falls, not even over a restart."""
        return self._lsn

    def next_lsn(self) -> int:
        """Take the next number; one that a failed transaction took is given again."""
        self._lsn += 1
        return self._lsn

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is applied, or, when the block raises, nothing."""
        before = self._lsn
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            self._lsn = before
            raise
        self.connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file; the log is folded into it."""
        self.connection.close()

    def _last_lsn(self) -> int:
        row = self.connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'items'"
        ).fetchone()
        return row[0] if row else 0

"""The account as it was a while ago, for reads that are to be stale.

Nothing is kept, and writes cost nothing more, until `keep` is called. From then on versions that
are replaced or deleted go to a table of their own, and a view in front of the items shows what was
there at some time: while it exists, the connection takes it for the table `items`.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

COLUMNS = "version, container, pkrange, lsn, partition, id, birth, ts, expires, body"
BEGIN = """
CREATE TEMP TABLE past AS SELECT *, 0 AS ended FROM main.items WHERE 0;
CREATE INDEX temp.past_by_end ON past (ended);
CREATE TEMP TRIGGER keep_in_past BEFORE DELETE ON main.items BEGIN
    INSERT INTO past SELECT *, newest_version() FROM main.items WHERE version = OLD.version;
END;
"""
END = "DROP TRIGGER temp.keep_in_past; DROP TABLE temp.past;"


@dataclass(frozen=True, slots=True)
class AccountSnapshot:
    """The account after a write: the second, the newest version, and the newest LSNs.

    LSNs are by the number of a container and that of a physical partition.
    """

    seconds: float
    version: int
    lsns: Mapping[tuple[int, int], int]


class VersionHistory:
    """Snapshots, with the versions that a read of each of them needs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._snapshots: deque[AccountSnapshot] = deque()
        self._seconds = 0.0

    @property
    def is_kept(self) -> bool:
        return bool(self._snapshots)

    def keep(self, seconds: float | None, take_snapshot: Callable[[], AccountSnapshot]) -> None:
        """Keep versions that end from now on for at least so many seconds; None drops all."""
        if seconds is None:
            if self._snapshots:
                self._connection.executescript(END)
                self._snapshots.clear()
            return
        if not self._snapshots:
            self._connection.executescript(BEGIN)
            self._snapshots.append(take_snapshot())
            self._seconds = 0.0
        self._seconds = max(seconds, self._seconds)

    def add(self, snapshot: AccountSnapshot) -> None:
        """Take up the snapshot after a write, and drop those that are too old."""
        self._snapshots.append(snapshot)
        horizon = snapshot.seconds - self._seconds
        while len(self._snapshots) > 1 and self._snapshots[1].seconds <= horizon:
            self._snapshots.popleft()
        oldest = self._snapshots[0].version
        self._connection.execute("DELETE FROM temp.past WHERE ended <= ?", (oldest,))

    def find(self, seconds: float) -> AccountSnapshot:
        """The last snapshot until that time, or the oldest one."""
        until = (one for one in reversed(self._snapshots) if one.seconds <= seconds)
        return next(until, self._snapshots[0])

    @contextmanager
    def show(self, snapshot: AccountSnapshot) -> Iterator[None]:
        """Within the block all that reads items finds what was there at the snapshot."""
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

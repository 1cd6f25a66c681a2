"""How the account looked a while ago, for reads that are to be stale.

Nothing is kept, and writes cost nothing more, until `begin`. From then on versions that are
replaced or deleted go to a table of their own, and a view in front of the items shows what was
there at a moment: while it exists, the connection takes it for the table `items`.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping
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
class Moment:
    """The account after a write: the second, the newest version, and the newest LSNs.

    LSNs are by the number of a container and that of a physical partition.
    """

    seconds: float
    version: int
    lsns: Mapping[tuple[int, int], int]


class Past:
    """Moments from `begin` to `end`; one can be looked at in between."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._moments: deque[Moment] = deque()
        self._reach = 0.0

    @property
    def is_kept(self) -> bool:
        """Whether moments are noted now."""
        return bool(self._moments)

    def begin(self, now: Moment, reach: float) -> None:
        """Keep what is replaced or deleted; it can be looked at for `reach` seconds."""
        self._connection.executescript(BEGIN)
        self._moments.append(now)
        self._reach = reach

    def extend(self, reach: float) -> None:
        """Keep things for at least as long from now on."""
        self._reach = max(reach, self._reach)

    def note(self, moment: Moment) -> None:
        """Take up the moment after a write, and forget those out of reach."""
        self._moments.append(moment)
        horizon = moment.seconds - self._reach
        while len(self._moments) > 1 and self._moments[1].seconds <= horizon:
            self._moments.popleft()
        oldest = self._moments[0].version
        self._connection.execute("DELETE FROM temp.past WHERE ended <= ?", (oldest,))

    def end(self) -> None:
        """Forget everything."""
        self._connection.executescript(END)
        self._moments.clear()

    def moment(self, seconds: float) -> Moment:
        """The last moment until then, or the oldest that is known."""
        until = (one for one in reversed(self._moments) if one.seconds <= seconds)
        return next(until, self._moments[0])

    @contextmanager
    def shown(self, moment: Moment) -> Iterator[None]:
        """Within the block all that reads items finds what was there at the moment."""
        version = moment.version
        self._connection.execute(
            f"CREATE TEMP VIEW items AS SELECT {COLUMNS} FROM main.items"  # noqa: S608 - our own text
            f" WHERE version <= {version} UNION ALL"
            f" SELECT {COLUMNS} FROM temp.past WHERE version <= {version} AND ended > {version}"
        )
        try:
            yield
        finally:
            self._connection.execute("DROP VIEW temp.items")

"""The counts of every component of the local cloud: operations, bytes and request units.

Counts are exact and only grow; tests rely on them rather than on times, which depend on what else
the machine does.
"""

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock


@dataclass(slots=True)
class OperationTally:
    """One row: how often an operation ended in a status, and what it cost."""

    count: int = 0
    bytes: int = 0
    request_units: float = 0.0


class Counters:
    """A thread-safe table of tallies keyed by (component, operation, status).

    A component is a name such as `servicebus.east` or `cosmos`; an operation a verb in lower case
    such as `complete` or `batch`; a status the service's own (`200`, `409`, `ok`, `lock-lost`).
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._rows: defaultdict[tuple[str, str, str], OperationTally] = defaultdict(OperationTally)

    def add(
        self,
        component: str,
        operation: str,
        status: str | int,
        *,
        count: int = 1,
        size: int = 0,
        request_units: float = 0.0,
    ) -> None:
        """Add to one row; `size` is in bytes."""
        with self._lock:
            tally = self._rows[component, operation, str(status)]
            tally.count += count
            tally.bytes += size
            tally.request_units += request_units

    def snapshot(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Return `{component: {operation: {status: {count, bytes, request_units}}}}`."""
        with self._lock:
            rows = [(key, (t.count, t.bytes, t.request_units)) for key, t in self._rows.items()]
        table: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for (component, operation, status), (count, size, units) in sorted(rows):
            row = {"count": count, "bytes": size, "request_units": round(units, 2)}
            table.setdefault(component, {}).setdefault(operation, {})[status] = row
        return table

"""When a timer last ran and is to run next, over restarts if there is a directory to keep it in."""

import json
import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from local.functions_host.triggers.schedule import Schedule

log = logging.getLogger(__name__)

NEVER = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """What the real host keeps in a blob for each timer."""

    last: datetime
    next: datetime
    updated: datetime

    def document(self) -> dict[str, str]:
        """The status as the function sees it, and as it is kept."""
        return {
            "Last": self.last.isoformat(),
            "LastUpdated": self.updated.isoformat(),
            "Next": self.next.isoformat(),
        }


class ScheduleMonitor:
    """The status of one timer. Without a file it is forgotten with the process."""

    def __init__(self, schedule: Schedule, path: Path | None) -> None:
        self._schedule = schedule
        self._path = path
        self._status: ScheduleStatus | None = None

    def begin(self, now: datetime) -> bool:
        """Read what is kept; tells whether an occurrence was missed. Raises OSError."""
        kept = self._read()
        self._status = kept or ScheduleStatus(NEVER, self._schedule.after(now), NEVER)
        if kept is None:
            self._write()
            return False
        expected = kept.next if kept.last == NEVER else self._schedule.after(kept.last)
        return expected < now

    def ran(self, occurrence: datetime) -> None:
        """Note a run that was due at a time. Raises OSError."""
        self._status = ScheduleStatus(occurrence, self._schedule.after(occurrence), occurrence)
        self._write()

    def document(self) -> dict[str, str] | None:
        """What the function is told."""
        return self._status.document() if self._status else None

    def _read(self) -> ScheduleStatus | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            kept = json.loads(self._path.read_text("utf-8"))
            names = ("Last", "Next", "LastUpdated")
            return ScheduleStatus(*(datetime.fromisoformat(kept[name]) for name in names))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is no status of a timer, begun anew: %s", self._path, error)
            return None

    def _write(self) -> None:
        if self._path is None or self._status is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self._status.document(), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)

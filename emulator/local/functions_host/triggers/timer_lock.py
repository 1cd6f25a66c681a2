"""The lock under which a timer is followed: by one host of a region, also after a kill.

The real host keeps a blob lease for each timer. Whoever follows the timer renews it, whoever finds
it held looks again from time to time, and a host that stops gives it back. A killed host's lock
lasts until its period ends, and until then no timer of the region runs.
"""

import fcntl
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True)
class TimerLock:
    """The lock in a file, for one owner. Without a file nobody else can hold it."""

    path: Path | None
    owner: str

    def take(self, now: datetime, seconds: float) -> bool:
        """Take or renew the lock for so many seconds; False if another has it. Raises OSError."""
        if self.path is None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+", encoding="utf-8") as file:
            # Another host's look and write come before both of these, or after.
            fcntl.flock(file, fcntl.LOCK_EX)
            owner, until = read_holder(file)
            if until is not None and owner != self.owner and now < until:
                return False
            file.truncate(0)
            held = {"Owner": self.owner, "Until": (now + timedelta(seconds=seconds)).isoformat()}
            json.dump(held, file)
            return True

    def give_back(self, now: datetime) -> None:
        """Let the next one take the lock at once, if it is still this owner's. Raises OSError."""
        self.take(now, 0.0)


def read_holder(file: TextIO) -> tuple[str | None, datetime | None]:
    """The owner and when its lock ends. What a kill left half written is nobody's."""
    file.seek(0)
    try:
        held = json.load(file)
        return str(held["Owner"]), datetime.fromisoformat(held["Until"])
    except (ValueError, KeyError, TypeError):
        return None, None

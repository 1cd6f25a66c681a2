"""What the kernel says of a running process: its parent, and the processor time it has used."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# proc(5): ppid is field 4, utime and stime are 14 and 15; the name before them may hold blanks.
PARENT_AFTER_NAME, TIMES_AFTER_NAME = 1, slice(11, 13)


@dataclass(frozen=True, slots=True)
class Stat:
    """A process: its parent, and its user and system time, in clock ticks."""

    parent: int
    ticks: int


def stat(pid: int) -> Stat:
    """Look at a process; raises OSError for one that has gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Stat(int(fields[PARENT_AFTER_NAME]), sum(map(int, fields[TIMES_AFTER_NAME])))


def seconds_used(pid: int) -> float:
    """User and system time of a running process, in seconds; raises OSError for one that went."""
    return stat(pid).ticks / TICKS_PER_SECOND

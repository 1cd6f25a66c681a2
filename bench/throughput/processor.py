"""Processor time that another process has used."""

import os
from pathlib import Path

# proc(5): utime and stime are fields 14 and 15; the name before them may hold blanks.
FIELDS_AFTER_NAME = slice(11, 13)


def seconds_used(pid: int) -> float:
    """User and system time of a running process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[FIELDS_AFTER_NAME])) / os.sysconf("SC_CLK_TCK")

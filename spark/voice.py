"""What a job says while it runs: plain lines on stderr."""

import sys

FAILED = 2


def say(job: str, line: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{job}: {line}\n")
    sys.stderr.flush()


def failed(job: str, line: str) -> int:
    """Say why there is no result; the exit status for it."""
    say(job, line)
    return FAILED

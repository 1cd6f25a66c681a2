"""What a job says while it runs, on stderr."""

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass

from spark.stage import Stage, shown

FAILED = 2


@dataclass(frozen=True, slots=True)
class Voice:
    """A job's voice; a quiet one says nothing but why there is no result."""

    job: str
    is_quiet: bool = False

    def say(self, line: str) -> None:
        """A line of progress."""
        if not self.is_quiet:
            self.tell(line)

    def failed(self, line: str) -> int:
        """Say why there is no result; the exit status for it."""
        self.tell(line)
        return FAILED

    def stage(self, name: str, rows: int | None = None) -> AbstractContextManager[Stage]:
        """Show how far a stage is while in the context, of so many rows or of Spark's tasks."""
        return shown(self.job, name, rows, is_quiet=self.is_quiet)

    def tell(self, line: str) -> None:
        """A line, in any case."""
        sys.stderr.write(f"{self.job}: {line}\n")
        sys.stderr.flush()

"""Calls that go wrong, by their places among all calls that a piece of work makes."""

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.testkit.strikes import How, Strike

USE_CASES = Path(__file__).parents[2] / "shared" / "usecases"
PREFIX = f"{USE_CASES}{os.sep}"

type CallSite = tuple[str, int]


@dataclass
class Strikes(Strike):
    """Each call whose place is named goes wrong; whoever makes calls is noted."""

    struck: Mapping[int, How] = field(default_factory=dict)
    callers: set[CallSite] = field(default_factory=set)

    def falls(self, place: int) -> How | None:
        """How the call at this place goes wrong, if it does."""
        self.callers.add(caller())
        return self.struck.get(place)

    def __str__(self) -> str:
        """Which calls went wrong, and how."""
        return ", then ".join(
            f"call {place} ({self.made[place] if place < len(self.made) else 'not made'}) {how}"
            for place, how in self.struck.items()
        )


def caller() -> CallSite:
    """The line of a use case that awaits the call; no line where none does."""
    for frame, line in traceback.walk_stack(None):
        name = frame.f_code.co_filename
        if name.startswith(PREFIX):
            return name.removeprefix(PREFIX), line
    return "", 0

"""The message that the handler of this measurement is sent, and the lines it leaves."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

TRACE_SETTING = "DEATHS_TRACE"


class SlowCall(BaseModel):
    """A message to the handler: the place in its session."""

    number: int


@dataclass(frozen=True, slots=True)
class EffectLine:
    """A run of the handler that came to its end, by the clock of the machine."""

    at: float
    session: str
    number: int


def read_lines(file: Path) -> list[EffectLine]:
    if not file.exists():
        return []
    rows = (line.split() for line in file.read_text().splitlines())
    return [EffectLine(float(at), session, int(number)) for at, session, number in rows]

"""A table of statuses, and what feeding it must have done, worked out without Spark.

Nothing of the product is imported here; the journal's documents come as plain azure-cosmos reads
them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

TYPE = "flight.status"
MAPPING = {
    "format": "json",
    "columns": {
        "aircraft": "string",
        "line": "int",
        "at": "string",
        "delay_minutes": "int",
        "destination": "string",
        "flight": "string",
        "origin": "string",
        "status": "string",
    },
    "session": "aircraft",
    "key": ["line"],
    "order": ["line"],
    "body": ["at", "delay_minutes", "destination", "flight", "origin", "status"],
    "type": TYPE,
}


@dataclass(frozen=True, slots=True)
class Status:
    """A line of the table: the n-th status of an aircraft."""

    aircraft: str
    line: int
    delay_minutes: int = 0

    @property
    def body(self) -> dict[str, str | int]:
        return {
            "at": f"2013-01-01T05:17:{self.line % 60:02}",
            "delay_minutes": self.delay_minutes,
            "destination": "IAH",
            "flight": f"UA{self.line // 2}",
            "origin": "EWR",
            "status": ("departed", "arrived")[self.line % 2],
        }

    @property
    def said(self) -> str:
        """Its message's body, byte for byte."""
        return json.dumps(self.body, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """The digest under which the journal must know it."""
        return hashlib.sha256(f"{TYPE}\0{self.said}".encode()).hexdigest()


def table(aircraft: int, lines: range) -> list[Status]:
    """So many aircraft with a status for each line."""
    return [Status(f"N{number:03}", line) for line in lines for number in range(aircraft)]


def delayed(statuses: Sequence[Status], places: Iterable[int]) -> list[Status]:
    """The table with other delays at some places."""
    chosen = set(places)
    return [
        replace(status, delay_minutes=99) if place in chosen else status
        for place, status in enumerate(statuses)
    ]


def write(file: Path, statuses: Iterable[Status]) -> None:
    """The table as JSON lines, the newest first: order is the feed's to find."""
    rows = [{"aircraft": s.aircraft, "line": s.line} | s.body for s in statuses]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in reversed(rows)))


def expected(*feeds: Sequence[Status]) -> dict[str, list[str]]:
    """The digests that each session must have after these tables were fed one after the other.

    A feed adds, in the order of lines, what is new or says something else than before.
    """
    said: dict[tuple[str, int], Status] = {}
    found: dict[str, list[str]] = {}
    for statuses in feeds:
        for status in sorted(statuses, key=lambda s: s.line):
            if said.get((status.aircraft, status.line)) != status:
                said[status.aircraft, status.line] = status
                found.setdefault(status.aircraft, []).append(status.digest)
    return found


def effects(journal: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[str]]:
    """The digests that the journal has of each session, in the order of its entries."""
    return {
        session: [
            identity["digest"]
            for entry in sorted(entries, key=lambda entry: int(entry["id"]))
            if entry["status"] == "completed"
            for identity in entry["identities"]
        ]
        for session, entries in journal.items()
    }

"""The course of a run read back: its phases, what was wrong when, and how full the queues were."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.course import Bar
from chaos.records import read_lines
from demo.samples import Event


@dataclass(frozen=True, slots=True)
class Stretch:
    """A phase of the run, from when to when, in seconds since the epoch."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """What happened; every time is in seconds since the epoch, `waiting` by region."""

    phases: tuple[Stretch, ...]
    bars: tuple[Bar, ...]
    waiting: Mapping[str, tuple[tuple[float, int], ...]]
    events: tuple[Event, ...]

    @property
    def begin(self) -> float:
        """When the run began."""
        return self.phases[0].begin

    @property
    def end(self) -> float:
        """When the last thing was noted."""
        return self.phases[-1].end


def read_timeline(path: Path) -> Timeline:
    """Read the course of a run; raises ValueError where there is none."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in read_lines(path):
        by_kind.setdefault(line.pop("kind"), []).append(line)
    if not by_kind.get("phase"):
        raise ValueError(f"{path} tells of no run")
    noted = [line["at"] for kind in ("event", "sample") for line in by_kind.get(kind, [])]
    waiting: dict[str, list[tuple[float, int]]] = {}
    for line in by_kind.get("sample", []):
        for region, count in line["waiting"].items():
            waiting.setdefault(region, []).append((line["at"], count))
    return Timeline(
        phases=tuple(stretches(by_kind["phase"], max(noted))),
        bars=tuple(Bar(**line) for line in by_kind.get("bar", [])),
        waiting={region: tuple(points) for region, points in waiting.items()},
        events=tuple(Event(**line) for line in by_kind.get("event", [])),
    )


def stretches(phases: Iterable[Mapping[str, Any]], end: float) -> list[Stretch]:
    """Each phase lasts until the next one begins."""
    begun = [(str(line["phase"]), float(line["at"])) for line in phases]
    ends = [*(at for _, at in begun[1:]), end]
    return [Stretch(name, at, until) for (name, at), until in zip(begun, ends, strict=True)]

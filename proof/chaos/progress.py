"""The progress of a run: what happens is recorded, progress is counted, and both are shown."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from queue import Empty, SimpleQueue
from typing import Self

from rich.console import Console
from rich.text import Text

from proof.chaos.messages import EFFECTS_QUEUE
from proof.chaos.records import Record, RecordFollower
from proof.testbed.sampling import CloudSample, RunEvent, describe_region, format_time

LINE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FaultInterval:
    """A stretch of time in which a fault was in force; seconds since the epoch."""

    component: str
    what: str
    begin: float
    end: float


class RunLog:
    """Records phases, events, samples and faults; every thread of the run may call it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._new: SimpleQueue[RunEvent] = SimpleQueue()

    def note(self, kind: str, **fields: object) -> None:
        """Append a line of a kind, with the time of the call."""
        self.record.append({"kind": kind, "at": time.time(), **fields})

    def note_event(self, text: str) -> None:
        self.note("event", text=text)
        self._new.put(RunEvent(time.time(), text))

    def read_new(self) -> Iterator[RunEvent]:
        with suppress(Empty):
            while True:
                yield self._new.get_nowait()

    @contextmanager
    def fault(self, components: tuple[str, ...], what: str) -> Iterator[None]:
        begin = time.time()
        try:
            yield
        finally:
            for component in components:
                interval = FaultInterval(component, what, begin, time.time())
                self.record.append({"kind": "fault", **asdict(interval)})


@dataclass
class RunProgress:
    """Counts of the sender's ledger and the recorder's record; a copy that came twice is one."""

    ledger: RecordFollower
    received: RecordFollower
    safe: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    counted: set[tuple[str, str]] = field(default_factory=set)
    changed_at: float = field(default_factory=time.monotonic)

    def update(self) -> None:
        ledger = self.ledger.read_new()
        self.safe += sum(line["count"] for line in ledger if line["what"] == "safe")
        for line in self.received.read_new():
            copy = (line["region"], line["id"])
            if copy in self.counted:
                continue
            self.counted.add(copy)
            self.changed_at = time.monotonic()
            if line["queue"] == EFFECTS_QUEUE:
                self.effects[line["region"]] += 1

    def seconds_since_change(self) -> float:
        return time.monotonic() - self.changed_at

    def describe(self, sample: CloudSample | None) -> str:
        effects = ", ".join(f"{count} in {name}" for name, count in sorted(self.effects.items()))
        if sample is None:
            regions = "the cloud is DOWN"
        else:
            regions = " | ".join(describe_region(*region) for region in sample.regions.items())
        return f"{self.safe} safe; effects {effects or 'none'} | {regions}"


class ChaosDisplay:
    """Events one below the other; how the run stands in a last line, or every few seconds."""

    def __init__(self, console: Console, *, is_plain: bool) -> None:
        self.console = console
        self.phase = ""
        self._is_live = console.is_terminal and not is_plain
        self._status = console.status("")
        self._running = ExitStack()
        self._next_line_at = 0.0

    def __enter__(self) -> Self:
        if self._is_live:
            self._running.enter_context(self._status)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def show(self, state: str, events: Iterable[RunEvent]) -> None:
        for event in events:
            line = Text.assemble((format_time(event.at), "dim"), " ", event.text)
            self.console.print(line, soft_wrap=True)
        if self._is_live:
            self._status.update(Text.assemble((self.phase, "bold"), "  ", state))
        elif time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + LINE_SECONDS
            self.console.print(Text(f"{format_time(time.time())}    {state}"), soft_wrap=True)

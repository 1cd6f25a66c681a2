"""The log of a run and its progress: what happens is recorded and told, what came is counted."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from proof.chaos.messages import EFFECTS_QUEUE
from proof.chaos.records import Record, RecordFollower
from proof.testbed.sampling import CloudSample, tell


class RunLog:
    """Records events and faults; every thread of the run may call it."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def note(self, kind: str, **fields: object) -> None:
        """Append a line of a kind, with the time of the call."""
        self.record.append({"kind": kind, "at": time.time(), **fields})

    def note_event(self, text: str) -> None:
        self.note("event", text=text)
        tell(text)

    @contextmanager
    def fault(self, components: tuple[str, ...], what: str) -> Iterator[None]:
        begin = time.time()
        try:
            yield
        finally:
            for component in components:
                self.note("fault", component=component, what=what, begin=begin, end=time.time())


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
        ledger = self.ledger.read_lines()
        self.safe += sum(line["count"] for line in ledger if line["what"] == "safe")
        for line in self.received.read_lines():
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
        regions = sample or "the cloud is DOWN"
        return f"   {self.safe} safe; effects {effects or 'none'} | {regions}"

"""What happened in a run, as it happened: appended to a record, and kept for the display."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue

from chaos.records import Record
from demo.samples import Event, Sample


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in which something was wrong with a component; seconds since the epoch."""

    component: str
    what: str
    begin: float
    end: float


class Course:
    """Notes turns, samples and mishaps; every thread of the run may."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.told: SimpleQueue[Event] = SimpleQueue()

    def note(self, kind: str, **fields: object) -> None:
        """Append a line of a kind, with the time of the call."""
        self.record.append({"kind": kind, "at": time.time(), **fields})

    def tell(self, text: str) -> None:
        """Note something that happened, and have it shown."""
        self.note("event", text=text)
        self.told.put(Event(time.time(), text))

    def news(self) -> Iterator[Event]:
        """Walk over what was told since the last look."""
        while True:
            try:
                yield self.told.get_nowait()
            except Empty:
                return

    def sampled(self, sample: Sample) -> None:
        """Note how both regions stand."""
        waiting = {name: region.waiting for name, region in sample.regions.items()}
        self.note("sample", waiting=waiting)

    @contextmanager
    def during(self, components: tuple[str, ...], what: str) -> Iterator[None]:
        """Note that something is wrong with components for as long as the `with` block lasts."""
        begin = time.time()
        try:
            yield
        finally:
            for component in components:
                bar = Bar(component, what, begin, time.time())
                self.record.append({"kind": "bar", **asdict(bar)})

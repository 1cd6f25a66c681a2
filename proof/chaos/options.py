"""The settings of a run, and the files that it leaves."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

# What makes a run what it is, for a later check of it.
STORED = ("seed", "seconds", "messages", "rate", "operation_max", "pause_factor", "calls")


class RunFiles:
    def __init__(self, data: Path) -> None:
        self.logs = data / "logs"
        self.cloud = data / "cloud"
        self.app = data / "app"
        self.options = data / "options.json"
        self.workload = data / "workload.jsonl"
        # What the sender was told is safe; what came out of the queues; runs of handlers that call
        # the outside; what was done to the system and seen of it; what was left at the end.
        self.ledger = data / "ledger.jsonl"
        self.received = data / "received.jsonl"
        self.runs = data / "runs.jsonl"
        self.events = data / "events.jsonl"
        self.final_state = data / "final_state.json"


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The settings of one run: it lasts for `seconds`, or until `messages` are sent.

    `rate` is in messages a second and an upper limit; `operation_max` is how many are published at
    once. Pauses between faults are `pause_factor` times as long as usual. `calls` is how many
    messages of a session a host hands over at once.
    """

    data: Path
    seed: int
    seconds: float
    messages: int | None
    rate: float
    operation_max: int
    pause_factor: float
    calls: int
    is_plain: bool = False

    @property
    def report(self) -> Path:
        return self.data / "report.html"

    @property
    def messages_max(self) -> int:
        """The number of messages made: as many as asked for, or more than the time allows."""
        return self.messages or int(self.seconds * self.rate)

    def store(self) -> None:
        stored = {name: getattr(self, name) for name in STORED}
        RunFiles(self.data).options.write_text(json.dumps(stored), encoding="utf-8")

    def with_stored(self) -> "ChaosOptions":
        return replace(self, **json.loads(RunFiles(self.data).options.read_text(encoding="utf-8")))

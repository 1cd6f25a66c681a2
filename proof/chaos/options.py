"""The settings of a run, and the files that it leaves."""

from dataclasses import dataclass
from pathlib import Path


class RunFiles:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.logs = data / "logs"
        self.cloud = data / "cloud"
        self.app = data / "app"
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
    once. Pauses between faults are `pause_factor` times as long as usual.
    """

    data: Path
    seed: int
    seconds: float
    messages: int | None
    rate: float
    operation_max: int
    pause_factor: float

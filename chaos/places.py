"""Where a run keeps what."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """The files of a run's directory."""

    data: Path

    @property
    def logs(self) -> Path:
        """Logs of every process."""
        return self.data / "logs"

    @property
    def cloud(self) -> Path:
        """What the local cloud keeps."""
        return self.data / "cloud"

    @property
    def app(self) -> Path:
        """The Functions app that is run."""
        return self.data / "app"

    @property
    def asked(self) -> Path:
        """What the run was asked for."""
        return self.data / "asked.json"

    @property
    def load(self) -> Path:
        """What is to be sent."""
        return self.data / "load.jsonl"

    @property
    def ledger(self) -> Path:
        """What the sender was told."""
        return self.data / "ledger.jsonl"

    @property
    def witnessed(self) -> Path:
        """What came out of the queues."""
        return self.data / "witnessed.jsonl"

    @property
    def runs(self) -> Path:
        """Runs of handlers that call the outside."""
        return self.data / "runs.jsonl"

    @property
    def course(self) -> Path:
        """What the run did to the system, and what it saw of it."""
        return self.data / "course.jsonl"

    @property
    def remains(self) -> Path:
        """What queues and journal held at the end."""
        return self.data / "remains.json"

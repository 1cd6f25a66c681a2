"""What a run was asked to do."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from chaos.places import Places

ASKED = ("seed", "seconds", "messages", "rate", "operation_max", "ease", "cardinality")


class Cardinality(StrEnum):
    """Whether the hosts take one message at a time, or a batch."""

    ONE = "one"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one run: it lasts for `seconds`, or until `messages` are sent.

    `rate` is in messages a second and an upper limit; above `backlog_max` messages in a queue the
    sender pauses. `operation_max` is how many messages it publishes at once. Pauses between mishaps
    are `ease` times as long as usual.
    """

    data: Path
    seed: int
    seconds: float
    messages: int | None
    rate: float
    backlog_max: int
    operation_max: int
    ease: float
    cardinality: Cardinality
    report: Path
    is_plain: bool = False

    @property
    def messages_max(self) -> int:
        """How many messages are made: as many as asked for, or more than the time allows."""
        return self.messages or int(self.seconds * self.rate)

    def remember(self) -> None:
        """Write down what makes the run what it is, for whoever judges it later."""
        asked = {name: getattr(self, name) for name in ASKED}
        Places(self.data).asked.write_text(json.dumps(asked), encoding="utf-8")

    def recalled(self) -> "Options":
        """These options with what the run in their directory was asked for."""
        return replace(self, **json.loads(Places(self.data).asked.read_text(encoding="utf-8")))

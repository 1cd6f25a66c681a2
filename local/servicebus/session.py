"""A session: the messages that share a session id, and who may work on them."""

from dataclasses import dataclass, field

from local.servicebus.line import Line
from local.servicebus.message import StoredMessage
from local.servicebus.shelf import Shelf

type Holder = object  # whoever holds a session; compared by identity, never looked into


@dataclass(slots=True)
class Session:
    """One session. It is held by at most one holder at a time, until `locked_until`."""

    id: str
    line: Line = field(default_factory=Line)
    shelf: Shelf = field(default_factory=Shelf)
    handed_out: dict[int, StoredMessage] = field(default_factory=dict)
    holder: Holder | None = None
    locked_until: float = 0.0
    state: bytes | None = None

    @property
    def is_ready(self) -> bool:
        """Whether a receiver that takes any session may be given this one."""
        return self.holder is None and len(self.line) > 0

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be lost if the session were not there."""
        return self.holder is None and len(self.shelf) == 0 and self.state is None

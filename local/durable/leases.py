"""Work items in the hands of workers, each under a lease that ends."""

import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a work item runs, by the name of its field on the wire."""

    ORCHESTRATION = "orchestratorRequest"
    ACTIVITY = "activityRequest"
    ENTITY = "entityRequestV2"


@dataclass(frozen=True, slots=True)
class Lease:
    """One item handed out; the token is new each time an item is handed out."""

    token: str
    kind: Kind
    instance_id: str
    holder: str
    ends: float


class Leases:
    """The leases in force and the workers that are there; not safe for threads by itself."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[str, Lease] = {}
        self._present: Counter[str] = Counter()

    def grant(self, token: str, kind: Kind, instance_id: str, holder: str) -> None:
        """Note that a worker holds an item from now on."""
        ends = time.monotonic() + self._seconds
        self._held[token] = Lease(token, kind, instance_id, holder, ends)

    def end(self, token: str) -> Lease | None:
        """End a lease; None if it is in force no more, so its result is worth nothing."""
        return self._held.pop(token, None)

    def holds(self, holder: str, kind: Kind) -> int:
        """How many items of a kind a worker holds."""
        return sum(one.holder == holder and one.kind is kind for one in self._held.values())

    def arrive(self, holder: str) -> None:
        """A worker opened a stream; it is there until its last one closes."""
        self._present[holder] += 1

    def is_present(self, holder: str) -> bool:
        """Whether a worker has a stream open."""
        return self._present[holder] > 0

    def leave(self, holder: str) -> list[Lease]:
        """A stream closed; with a worker's last one its leases end and are returned."""
        self._present[holder] -= 1
        if self._present[holder] > 0:
            return []
        del self._present[holder]
        return [self._held.pop(one.token) for one in self._of(holder)]

    def expired(self) -> list[Lease]:
        """End the leases whose time is over and return them."""
        now = time.monotonic()
        late = [one for one in self._held.values() if one.ends <= now]
        return [self._held.pop(one.token) for one in late]

    def _of(self, holder: str) -> list[Lease]:
        return [one for one in self._held.values() if one.holder == holder]

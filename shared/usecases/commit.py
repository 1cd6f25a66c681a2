"""Create an entry and know whether it was created, whatever the store answered."""

from dataclasses import dataclass
from itertools import count

from shared.domain.batch import NOTHING_CARRIED, Appended, Carried
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Attempt, Entry, Json, Owner
from shared.ports import Clock, Journal
from shared.usecases.heads import KnownHeads


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one invocation waits inside itself, so that waiting spends no delivery count."""

    gap_seconds: float = 5.0
    poll_seconds: float = 0.5
    unknown_tries: int = 6


class Committer:
    """One worker's way to the journals: it remembers heads and tells its attempts apart."""

    def __init__(self, store: Journal, clock: Clock, owner: Owner, patience: Patience) -> None:
        self.store = store
        self.clock = clock
        self.owner = owner
        self.patience = patience
        self.heads = KnownHeads()
        self.attempts = count(1)

    def new_attempt(self) -> Attempt:
        """A try that no other has: the instance's own name, and a count."""
        return Attempt(f"{self.owner.instance}/{next(self.attempts)}", self.owner)

    async def commit(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> Appended:
        """Create the entry; anything but CREATED means that another worker was first.

        An unknown outcome is read back and told apart by attempt. Creating the same attempt again
        is safe while nothing is stored there: both creates are the same one. Raises OutcomeUnknown
        when the store does not answer in the end, Unavailable when it refuses, TooLarge.
        """
        for tried in range(self.patience.unknown_tries):
            appended = await self.append(entry, carried, is_first=not tried)
            if appended is not Appended.CREATED and await self.is_ours(entry):
                appended = Appended.CREATED
            if appended is Appended.CREATED:
                self.heads.learn(entry.session, entry, is_ours=True)
            if appended is not None:
                return appended
            await self.clock.sleep(self.patience.poll_seconds * tried)
        raise OutcomeUnknown(f"no answer for entry {entry.position} of session {entry.session!r}")

    async def append(self, entry: Entry, carried: Carried, *, is_first: bool) -> Appended | None:
        """Create the entry; None when the outcome is unknown, be it that of an earlier try."""
        try:
            return await self.store.append(entry, carried)
        except OutcomeUnknown:
            return None
        except Unavailable:
            if is_first:
                raise
            return None

    async def is_ours(self, entry: Entry) -> bool:
        """Whether the entry at this position is this very attempt.

        Raises OutcomeUnknown where that cannot be read: the entry may be there.
        """
        try:
            stored = await self.store.entry(entry.session, entry.position)
        except Unavailable as error:
            raise OutcomeUnknown(f"it cannot be read what was written: {error}") from error
        return stored is not None and stored.attempt == entry.attempt

    async def read_head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The stored head, remembered from now on."""
        head = await self.store.head(session, newest=newest)
        self.heads.learn(session, head)
        return head

    async def state_of(self, head: Entry | None) -> Json:
        """The state after a head: its own, or that of the entry it points to."""
        if head is None:
            return {}
        if head.state is not None:
            return head.state
        if head.state_at is None:
            return {}
        holder = await self.store.entry(head.session, head.state_at)
        if holder is None or holder.state is None:
            # The head was remembered for too long: whoever comes next reads it.
            self.heads.forget(head.session)
            raise OutcomeUnknown(f"the state of session {head.session!r} was compacted meanwhile")
        return holder.state

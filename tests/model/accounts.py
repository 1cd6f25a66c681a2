"""What three accounts that know nothing of each other keep of one session.

An account applies one operation at a time, whole or not at all, as a transactional batch does in
one logical partition; nothing else is asked of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

ACCOUNTS = range(3)
MAJORITY = 2

# A ballot's round, and the account in which each of its positions is decided first.
type Ballot = tuple[int, int]
# The id of an entry's document: its position, and the ballot that it was written under.
type Place = tuple[int, Ballot]
# Each message so far with the attempt that applied it: the value of an entry, and its whole past.
type State = tuple[tuple[int, int], ...]

FIRST_BALLOT: Ballot = (0, 0)
# What the first entry builds on in an account that was promised to a ballot while it was empty.
EMPTY: Place = (-1, FIRST_BALLOT)
# What no account holds.
NOWHERE: Place = (-2, FIRST_BALLOT)


@dataclass(frozen=True, slots=True)
class Entry:
    place: Place
    state: State

    @property
    def position(self) -> int:
        return self.place[0]

    @property
    def ballot(self) -> Ballot:
        return self.place[1]

    @property
    def first(self) -> int:
        """The account that decides which entry has this place."""
        return self.ballot[1]

    def under(self, ballot: Ballot) -> "Entry":
        """The same entry, proposed again."""
        return replace(self, place=(self.position, ballot))


@dataclass(frozen=True, slots=True)
class Look:
    """A query: which ballot an account is promised to."""


@dataclass(frozen=True, slots=True)
class Read:
    """A query: the entries that an account holds, asked after it is known what it promised."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Delete the document of one ballot and create that of a higher one."""

    old: Ballot | None
    new: Ballot


@dataclass(frozen=True, slots=True)
class Append:
    """Create an entry; prove that its ballot holds, and that what it builds on is still there.

    Without a proof it is the first entry of a session that has not begun in this account.
    """

    entry: Entry
    proof: Place | None


@dataclass(frozen=True, slots=True)
class Learn:
    """Create entries that are known to be chosen, on a document that is still there."""

    entries: tuple[Entry, ...]
    proof: Place


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete entries that compaction needs no more."""

    places: tuple[Place, ...]


type Operation = Look | Read | Promise | Append | Learn | Remove


class Result(Enum):
    DONE = auto()
    BEGUN = auto()  # the session has begun in this account
    FENCED = auto()  # the account is promised to another ballot, or to none
    ORPHANED = auto()  # what the operation builds on is not there
    TAKEN = auto()  # the place has an entry already


@dataclass(frozen=True, slots=True)
class Answer:
    result: Result
    promised: Ballot | None
    held: Mapping[Place, Entry] = field(default_factory=dict)


@dataclass(slots=True)
class Account:
    """One region's account. The session has begun in it once it is promised to any ballot."""

    promised: Ballot | None = None
    held: dict[Place, Entry] = field(default_factory=dict)

    def apply(self, operation: Operation) -> Answer:
        match operation:
            case Look() | Read():
                result = Result.DONE
            case Promise(old, new):
                result = self.promise(old, new)
            case Append(entry, proof):
                result = self.append(entry, proof)
            case Learn(entries, proof):
                result = self.learn(entries, proof)
            case Remove(places):
                result = Result.DONE
                for place in places:
                    self.held.pop(place, None)
        held = dict(self.held) if isinstance(operation, Read) else {}
        return Answer(result, self.promised, held)

    def promise(self, old: Ballot | None, new: Ballot) -> Result:
        if self.promised != old:
            return Result.FENCED
        if old is None:
            self.held[EMPTY] = Entry(EMPTY, ())
        self.promised = new
        return Result.DONE

    def append(self, entry: Entry, proof: Place | None) -> Result:
        if proof is None:
            return self.begin(entry)
        if self.promised != entry.ballot:
            return Result.FENCED
        if proof not in self.held:
            return Result.ORPHANED
        if entry.place in self.held:
            return Result.TAKEN
        self.held[entry.place] = entry
        return Result.DONE

    def begin(self, entry: Entry) -> Result:
        if self.promised is not None:
            return Result.BEGUN
        self.promised = entry.ballot
        self.held[entry.place] = entry
        return Result.DONE

    def learn(self, entries: Iterable[Entry], proof: Place) -> Result:
        if proof not in self.held:
            return Result.ORPHANED
        for entry in entries:
            self.held.setdefault(entry.place, entry)
        return Result.DONE

"""A journal without a write region, as one worker sees it: docs/next/no-write-region.md.

Each function asks accounts by `yield` and is given what they answered, so whoever drives it decides
what arrives, when, how often, and whether at all.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field

from tests.model.accounts import (
    ACCOUNTS,
    EMPTY,
    FIRST_BALLOT,
    MAJORITY,
    NOWHERE,
    Account,
    Answer,
    Append,
    Ballot,
    Entry,
    Learn,
    Look,
    Operation,
    Place,
    Promise,
    Read,
    Remove,
    Result,
    State,
)

# Beyond these a message is given back to its queue, which brings it again.
TRIES = 4
REPAIRABLE = (Result.BEGUN, Result.FENCED, Result.ORPHANED)
# Compaction leaves so many entries below the head.
KEPT = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol, and the ways in which a test breaks it."""

    copies_needed: int = 1
    reads_after_promise: bool = True
    promises_needed: int = MAJORITY
    finishes_what_is_in_doubt: bool = True
    trusts_any_ballot: bool = False
    account: Callable[[], Account] = Account


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests to accounts at once; the worker goes on when so many have answered, or all ended."""

    requests: Mapping[int, Operation]
    enough: int


# Whoever did not answer in time is not among the answers: it is unknown what became of a write.
type Answers = Mapping[int, Answer]
type Steps[T] = Generator[Ask, Answers, T]


@dataclass(slots=True)
class Worker:
    """A worker's memory: the newest entry that it knows to be chosen, and under which ballot."""

    rules: Rules
    new_attempt: Callable[[], int]
    home: int = 0
    ballot: Ballot | None = None
    head: Entry | None = None
    silent: set[int] = field(default_factory=set)
    trusts_home: bool = True

    def forget(self) -> None:
        """Ask a majority the next time: what one account said was out of date."""
        self.ballot, self.trusts_home = None, False

    def process(self, message: int) -> Steps[bool]:
        """Bring a message into the journal; true once it may be settled."""
        for _ in range(TRIES):
            was_known = self.ballot is not None
            if not was_known and not (yield from self.find_head()):
                continue
            state = self.head.state if self.head else ()
            if message < len(state):
                return True
            if message > len(state):
                if not was_known:
                    return False  # an earlier message is missing
                self.forget()
                continue
            assert self.ballot is not None
            entry = Entry((len(state), self.ballot), (*state, (message, self.new_attempt())))
            yield from self.decide(entry)
        return False

    def find_head(self) -> Steps[bool]:
        """Learn the newest chosen entry, and finish one that is in doubt."""
        if self.trusts_home and (found := (yield from self.read_home())):
            ballot, there = found
            # In any account but its first it is a copy, and so it is chosen.
            is_copy = there.first != self.home
            self.ballot, self.head = ballot, there if is_copy else None
            return is_copy or (yield from self.copy(there))
        looked = yield Ask(dict.fromkeys(ACCOUNTS, Look()), MAJORITY)
        if len(looked) < MAJORITY:
            return False
        promised = {at: answer.promised for at, answer in looked.items()}
        ballot = max((one for one in promised.values() if one is not None), default=FIRST_BALLOT)
        if ballot[1] in self.silent and ballot[1] not in looked:
            # Whoever is asked first does not answer: somebody else is asked first from now on.
            ballot = (ballot[0] + 1, min(looked))
        self.silent -= looked.keys()
        early: Answers = {}
        if not self.rules.reads_after_promise:
            early = yield Ask(dict.fromkeys(ACCOUNTS, Read()), MAJORITY)
        under = yield from self.collect_promises(ballot, promised)
        if len(under) < self.rules.promises_needed:
            return False
        read = yield Ask(dict.fromkeys(under, Read()), self.rules.promises_needed)
        held = early or read
        if len(held) < self.rules.promises_needed:
            return False
        newest = newest_of(held)
        is_safe = newest is None or is_chosen(newest, held)
        if is_safe or not self.rules.finishes_what_is_in_doubt:
            self.ballot, self.head, self.trusts_home = ballot, newest, True
            return True
        assert newest is not None
        # Nothing may be built on it before it is chosen, and nothing else may take its position.
        self.ballot, self.head = ballot, None
        return (yield from self.decide(newest.under(ballot)))

    def read_home(self) -> Steps[tuple[Ballot, Entry] | None]:
        """Return the ballot and the newest entry of the nearest account, if it is of that ballot.

        Whoever wrote it had the promises of a majority. There may be newer ones elsewhere, which
        whoever appends will hear.
        """
        read = yield Ask({self.home: Read()}, 1)
        newest = newest_of(read)
        ballot = read[self.home].promised if newest else None
        if newest is None or ballot is None:
            return None
        is_in_use = newest.ballot == ballot or self.rules.trusts_any_ballot
        return (ballot, newest) if is_in_use else None

    def collect_promises(
        self, ballot: Ballot, promised: Mapping[int, Ballot | None]
    ) -> Steps[list[int]]:
        """Return the accounts that take nothing under a lower ballot any more."""
        under = [at for at, one in promised.items() if one == ballot]
        if ballot == FIRST_BALLOT:
            return list(promised)  # no ballot is lower
        lower = {at: Promise(one, ballot) for at, one in promised.items() if one != ballot}
        if lower:
            needed = max(self.rules.promises_needed - len(under), 1)
            answers = yield Ask(lower, needed)
            under += [at for at, answer in answers.items() if answer.promised == ballot]
        return under

    def decide(self, entry: Entry) -> Steps[bool]:
        """Have an entry chosen, or the one that has its place already; true if one was."""
        first = entry.first
        append = Append(entry, predecessor_of(entry, self.head))
        for _ in range(2):
            answers = yield Ask({first: append}, 1)
            if first not in answers:
                continue  # the same entry again, which may be there by now
            result = answers[first].result
            if result in REPAIRABLE and (yield from self.repair(first, entry)):
                result = Result.TAKEN
            if result is Result.TAKEN:
                read = yield Ask({first: Read()}, 1)
                there = read[first].held.get(entry.place) if first in read else None
                if there is not None:
                    return (yield from self.copy(there))
            if result is Result.DONE:
                return (yield from self.copy(entry))
            self.forget()
            return False
        self.silent.add(first)
        self.forget()
        return False

    def copy(self, entry: Entry) -> Steps[bool]:
        """Bring an entry from its first account to others: one more and it is chosen."""
        needed = self.rules.copies_needed
        append = Append(entry, predecessor_of(entry, self.head))
        others = [at for at in ACCOUNTS if at != entry.first]
        answers = yield Ask(dict.fromkeys(others, append), max(needed, 1))
        copies = sum(one.result in (Result.DONE, Result.TAKEN) for one in answers.values())
        for at, answer in answers.items():
            if copies < needed and answer.result in REPAIRABLE:
                copies += yield from self.repair(at, entry)
        if copies < needed:
            self.forget()
            return False
        self.head = entry
        return True

    def repair(self, at: int, entry: Entry) -> Steps[bool]:
        """Bring an account to what comes before an entry of its ballot, and then the entry."""
        read = yield Ask(dict.fromkeys(ACCOUNTS, Read()), len(ACCOUNTS))
        promised = read[at].promised if at in read else None
        if at in read and (promised is None or promised < entry.ballot):
            yield Ask({at: Promise(promised, entry.ballot)}, 1)
            read = yield Ask(dict.fromkeys(ACCOUNTS, Read()), len(ACCOUNTS))
        if at not in read or read[at].promised != entry.ballot:
            return False
        proof = proof_in(read[at].held, entry)
        if proof is None:
            learned = yield from self.teach(at, entry.state[:-1], read)
            proof = learned[-1].place if learned else None
        if proof is None:
            return False
        answers = yield Ask({at: Append(entry, proof)}, 1)
        return at in answers and answers[at].result in (Result.DONE, Result.TAKEN)

    def teach(self, at: int, state: State, read: Answers) -> Steps[tuple[Entry, ...]]:
        """Copy the entries that lead to a chosen state into an account that misses some."""
        held = read[at].held
        missing = missing_in(held, state, [one.held for one in read.values()])
        if not missing:
            return ()
        # The newest document must still be there: so nothing after it was removed meanwhile.
        answers = yield Ask({at: Learn(missing, max(held, default=EMPTY))}, 1)
        return missing if at in answers and answers[at].result is Result.DONE else ()

    def sweep(self) -> Steps[bool]:
        """Bring every account to the head, and remove what nobody needs."""
        self.forget()
        if not (yield from self.find_head()) or self.head is None or self.ballot is None:
            return False
        head = self.head
        read = yield Ask(dict.fromkeys(ACCOUNTS, Read()), len(ACCOUNTS))
        for at, answer in read.items():
            if answer.promised is None:
                yield Ask({at: Promise(None, self.ballot)}, 1)
            elif not any(one.state == head.state for one in answer.held.values()):
                yield from self.teach(at, head.state, read)
        old = {at: Remove(removable(answer.held, head)) for at, answer in read.items()}
        if gone := {at: one for at, one in old.items() if one.places}:
            yield Ask(gone, 1)
        return True


def newest_of(held: Answers) -> Entry | None:
    """The entry of the highest position, and of these the one of the highest ballot.

    Everything before its position is chosen, because an entry is only built on a chosen one.
    """
    places = [place for answer in held.values() for place in answer.held if place != EMPTY]
    if not places:
        return None
    newest = max(places)
    return next(answer.held[newest] for answer in held.values() if newest in answer.held)


def is_chosen(entry: Entry, held: Answers) -> bool:
    """An entry outside its first account is a copy, so two accounts have it."""
    return any(entry.place in answer.held for at, answer in held.items() if at != entry.first)


def predecessor_of(entry: Entry, head: Entry | None) -> Place | None:
    """What an entry builds on, as far as its worker knows it; NOWHERE makes it read first."""
    if head is not None and head.position == entry.position - 1:
        return head.place
    if entry.position > 0:
        return NOWHERE
    return None if entry.ballot == FIRST_BALLOT else EMPTY


def proof_in(held: Mapping[Place, Entry], entry: Entry) -> Place | None:
    """What an account holds that an entry may build on: its predecessor, under any ballot."""
    if entry.position == 0:
        return min((place for place in held if place[0] <= 0), default=None)
    before = [place for place, one in held.items() if one.state == entry.state[:-1]]
    return max(before, default=None)


def missing_in(
    held: Mapping[Place, Entry], state: State, elsewhere: Iterable[Mapping[Place, Entry]]
) -> tuple[Entry, ...]:
    """The entries that lead to a state and are not held here, in order, if they can be had."""

    def leads(one: Entry) -> bool:
        return bool(one.state) and state[: len(one.state)] == one.state

    if max(held, default=EMPTY)[0] > len(state):
        return ()  # the account is ahead of whoever asks
    has = max((one.position for one in held.values() if leads(one)), default=-1)
    found = {one.position: one for page in elsewhere for one in page.values() if leads(one)}
    missing = tuple(found[position] for position in sorted(found) if position > has)
    return missing if missing and missing[-1].state == state else ()


def removable(held: Mapping[Place, Entry], head: Entry) -> tuple[Place, ...]:
    """The oldest entries of an account; its newest one stays."""
    newest = max(place[0] for place in held) if held else 0
    return tuple(place for place in sorted(held) if place[0] < min(head.position - KEPT, newest))

"""One random schedule of the protocol: who is heard when, how often, and whether at all."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from tests.model.accounts import (
    ACCOUNTS,
    MAJORITY,
    Answer,
    Append,
    Entry,
    Learn,
    Operation,
    Place,
    Result,
    State,
)
from tests.model.worker import TRIES, Ask, Rules, Steps, Worker

MESSAGES = 6
WORKERS = 3
# So long faults are injected; after them everything has to come to its end.
ROUGH_STEPS = 400
STEPS_MAX = 20_000


class BrokenPromise(AssertionError):
    """What the protocol promises does not hold in this schedule."""


@dataclass(slots=True)
class Request:
    """An operation on its way; whoever asked may have crashed or given up since."""

    asker: int
    ask: int
    account: int
    operation: Operation


@dataclass(slots=True)
class Seat:
    """A process in a region: it may crash, and then a new one without memory takes its place."""

    worker: Worker
    unsettled: set[int] = field(default_factory=lambda: set(range(MESSAGES)))
    job: Steps[bool] | None = None
    message: int | None = None
    ask: int = -1
    enough: int = 0
    outstanding: set[int] = field(default_factory=set)
    answers: dict[int, Answer] = field(default_factory=dict)
    is_frozen: bool = False


class History:
    """What was ever accepted, whatever was removed since."""

    def __init__(self) -> None:
        self.accepted: dict[Place, dict[int, State]] = defaultdict(dict)
        self.chosen: dict[int, State] = {}
        self.had: list[set[State]] = [set() for _ in ACCOUNTS]
        self.rounds = 0

    def add_learned(self, account: int, entries: Iterable[Entry]) -> None:
        """Note that an account was brought to where others were."""
        self.had[account] |= {entry.state for entry in entries}

    def add(self, account: int, place: Place, state: State) -> None:
        """Note that an account took an entry; two of three choose it."""
        taken = self.accepted[place]
        expect(set(taken.values()) <= {state}, f"two entries at {place}")
        taken[account] = state
        expect(place[0] == 0 or state[:-1] in self.had[account], f"a gap below {place}")
        self.had[account].add(state)
        if len(taken) < MAJORITY:
            return
        position, ballot = place
        self.rounds = max(self.rounds, ballot[0])
        expect(self.chosen.get(position, state) == state, f"two entries chosen at {position}")
        self.chosen[position] = state
        numbers = [message for message, _ in state]
        expect(numbers == list(range(position + 1)), f"{numbers} at {position}")
        for earlier in range(position):
            before = self.chosen.get(earlier)
            expect(before == state[: earlier + 1], f"{position} does not follow {earlier}")


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenPromise(what)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a schedule came to: a promise that broke, or how much went wrong on the way."""

    broken: str
    steps: int
    crashes: int
    rounds: int


def run(seed: int, rules: Rules) -> Ran:
    schedule = Schedule(seed, rules)
    broken = ""
    try:
        schedule.play()
    except BrokenPromise as error:
        broken = str(error)
    return Ran(broken, schedule.steps, schedule.crashes, schedule.history.rounds)


def drive(
    job: Steps[bool], apply: Callable[[int, Operation], Answer | None]
) -> tuple[bool, list[Ask]]:
    """Do a job of a worker alone; each request is answered at once, or never.

    The answer is the job's, and all that it asked.
    """
    asked: list[Ask] = []
    try:
        ask = next(job)
        while True:
            asked.append(ask)
            answers = {at: apply(at, one) for at, one in ask.requests.items()}
            ask = job.send({at: one for at, one in answers.items() if one is not None})
    except StopIteration as stopped:
        return bool(stopped.value), asked


class Schedule:
    def __init__(self, seed: int, rules: Rules) -> None:
        self.random = random.Random(seed)
        self.rules = rules
        self.attempts = count(1)
        self.asks = count(1)
        self.accounts = [rules.account() for _ in ACCOUNTS]
        self.silent: set[int] = set()
        self.sent: list[Request] = []
        self.answered: list[tuple[Request, Answer]] = []
        self.history = History()
        self.seats = [Seat(self.new_worker()) for _ in range(WORKERS)]
        self.steps = self.crashes = 0
        # How rough it is differs from seed to seed.
        self.loss = self.random.choice((0.02, 0.1, 0.2, 0.35))
        self.trouble = self.random.choice((0.02, 0.06, 0.15))

    def new_worker(self) -> Worker:
        return Worker(self.rules, lambda: next(self.attempts), self.random.choice(ACCOUNTS))

    def play(self) -> None:
        """Do all work under faults, then without; then look whether everything is there."""
        for _ in range(ROUGH_STEPS):
            if self.random.random() < self.trouble:
                self.cause_trouble()
            self.step(self.loss)
        # One account of three may stay away for ever.
        self.silent = {self.random.choice(ACCOUNTS)} if self.random.random() < 0.5 else set()
        for seat in self.seats:
            seat.is_frozen = False
        while any(seat.unsettled for seat in self.seats):
            self.step(0.0)
            expect(self.steps < STEPS_MAX, "it does not come to an end")
        self.check_head()

    def check_head(self) -> None:
        """A worker without memory finds all that was settled, in any two accounts."""
        expect(len(self.history.chosen) == MESSAGES, f"chosen: {sorted(self.history.chosen)}")
        for away in ACCOUNTS:
            if self.silent - {away}:
                continue
            worker = self.new_worker()
            worker.forget()
            # What it finds out in one try, it uses in the next.
            if not any(self.finds_head(worker, away) for _ in range(TRIES)):
                raise BrokenPromise(f"no head without {away}")
            state = worker.head.state if worker.head else ()
            expect(state == self.history.chosen[MESSAGES - 1], f"without {away}: {state}")

    def finds_head(self, worker: Worker, away: int) -> bool:
        """Let a worker look for the head while nothing goes wrong, but that an account is away."""
        job = worker.find_head()
        return drive(job, lambda at, one: None if at == away else self.apply(at, one))[0]

    def cause_trouble(self) -> None:
        """Something breaks, or is well again."""
        seat = self.random.choice(self.seats)
        match self.random.randrange(6):
            case 0:
                seat.worker, seat.job, seat.message = self.new_worker(), None, None
                seat.outstanding, seat.ask = set(), -1
                self.crashes += 1
            case 1:
                seat.is_frozen = not seat.is_frozen
            case 2 | 3:
                # It takes an account for silent that is not, as a slow link makes it.
                if seat.job is None:
                    seat.worker.forget()
                seat.worker.silent.add(self.random.choice(ACCOUNTS))
            case _:
                self.silent = set() if self.silent else {self.random.choice(ACCOUNTS)}

    def step(self, loss: float) -> None:
        """Something arrives, somebody waits no longer, or somebody begins something."""
        self.steps += 1
        chance = self.random.random()
        seat = self.random.choice(self.seats)
        if chance < 0.45 and self.sent:
            self.arrive(loss)
        elif chance < 0.75 and self.answered:
            self.hear(loss)
        elif seat.is_frozen:
            return
        elif seat.job is None:
            self.begin(seat)
        elif self.random.random() < 0.1 + loss:
            self.give_up(seat)

    def arrive(self, loss: float) -> None:
        heard = [at for at, one in enumerate(self.sent) if one.account not in self.silent]
        if not heard:
            return
        at = self.random.choice(heard)
        request = self.sent[at]
        chance = self.random.random()
        if chance >= loss / 2:
            # Otherwise a client or a proxy sends it once more, sooner or later.
            self.sent[at] = self.sent[-1]
            self.sent.pop()
        if chance > 1 - loss:
            return  # it is lost
        answer = self.apply(request.account, request.operation)
        if self.random.random() >= loss:
            self.answered.append((request, answer))

    def apply(self, at: int, operation: Operation) -> Answer:
        answer = self.accounts[at].apply(operation)
        if isinstance(operation, Append) and answer.result is Result.DONE:
            self.history.add(at, operation.entry.place, operation.entry.state)
        if isinstance(operation, Learn) and answer.result is Result.DONE:
            self.history.add_learned(at, operation.entries)
        return answer

    def hear(self, loss: float) -> None:
        request, answer = self.answered.pop(self.random.randrange(len(self.answered)))
        seat = self.seats[request.asker]
        if seat.is_frozen:
            self.answered.append((request, answer))
        elif seat.ask == request.ask and request.account in seat.outstanding:
            seat.outstanding.discard(request.account)
            seat.answers[request.account] = answer
            if len(seat.answers) >= seat.enough or not seat.outstanding:
                self.go_on(seat)

    def give_up(self, seat: Seat) -> None:
        """A deadline passes; the request may arrive nevertheless."""
        seat.outstanding.discard(self.random.choice(sorted(seat.outstanding)))
        if not seat.outstanding:
            self.go_on(seat)

    def begin(self, seat: Seat) -> None:
        if not seat.unsettled or self.random.random() < 0.15:
            seat.message, seat.job = None, seat.worker.sweep()
        else:
            in_turn = self.random.random() < 0.7
            seat.message = min(seat.unsettled) if in_turn else max(seat.unsettled)
            seat.job = seat.worker.process(seat.message)
        self.go_on(seat, begins=True)

    def go_on(self, seat: Seat, *, begins: bool = False) -> None:
        assert seat.job is not None
        try:
            ask = next(seat.job) if begins else seat.job.send(dict(seat.answers))
        except StopIteration as stopped:
            self.end(seat, is_done=bool(stopped.value))
            return
        self.send(seat, ask)

    def send(self, seat: Seat, ask: Ask) -> None:
        seat.ask, seat.enough = next(self.asks), ask.enough
        seat.outstanding, seat.answers = set(ask.requests), {}
        asker = self.seats.index(seat)
        self.sent += [Request(asker, seat.ask, at, one) for at, one in ask.requests.items()]

    def end(self, seat: Seat, *, is_done: bool) -> None:
        if seat.message is not None and is_done:
            state = self.history.chosen.get(seat.message)
            expect(state is not None, f"{seat.message} is settled and not chosen")
            seat.unsettled.discard(seat.message)
        seat.job, seat.message, seat.ask = None, None, -1

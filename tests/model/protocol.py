"""The protocol as steps, each one call to the store or the bus: what can happen next, and what not.

What a message means and what entries look like is the engine's: `decide` and `next_entry`. The
order of calls is written here once more, in the shortest way.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.decision import Busy, Decision, Duplicate, Gap, Proceed, cursor_of
from shared.domain.handler import HandlerResult
from shared.domain.journal import Entry, Lease, Status, lagging_regions
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import DestinationBatch, Outbox
from tests.model.situation import (
    GROUP,
    MESSAGES,
    REGIONS,
    Doing,
    Entries,
    Key,
    Situation,
    Summary,
    attempt_of,
    put,
    sent,
    summarise,
)

type Decide = Callable[..., Decision]
type Next = Iterator[tuple[str, Situation]]

LEASE = Lease(30.0)
# Regions are delivered to apart from each other, so that one stands for all.
DESTINATIONS = ("east",)


class Protocol:
    """Two workers, one in each region, and a sweep that delivers what they left."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.entries = Entries()
        self.superseded: dict[Key, Key] = {}
        self.acknowledged: dict[Key, Key] = {}
        self.summaries: dict[tuple[Key, ...], Summary] = {}

    def next(self, now: Situation) -> Next:
        """Everything that can happen now, by name."""
        for worker in range(len(REGIONS)):
            doing = now.workers[worker]
            if doing.step != "idle" and now.crashes:
                yield f"{REGIONS[worker]} dies", self.crashed(now, worker)
            step: Callable[[Situation, int], Next] = getattr(self, doing.step)
            for name, after in step(now, worker):
                yield f"{REGIONS[worker]} {name}", after
        yield from self.sweep(now)

    def summary(self, journal: tuple[Key, ...]) -> Summary:
        """What a journal says; each is made once."""
        if journal not in self.summaries:
            self.summaries[journal] = summarise([self.entries.real[key] for key in journal])
        return self.summaries[journal]

    def crashed(self, now: Situation, worker: int) -> Situation:
        """A worker forgets everything and begins again."""
        return self.does(now, worker, Doing())._replace(crashes=now.crashes - 1)

    def does(self, now: Situation, worker: int, doing: Doing) -> Situation:
        """A worker goes on to another step."""
        return now._replace(workers=put(now.workers, worker, doing))

    def head(self, now: Situation) -> Entry | None:
        """The newest entry."""
        return self.entries.real[now.journal[-1]] if now.journal else None

    def view(self, doing: Doing) -> Entry | None:
        """The head as a worker has read it."""
        return None if doing.view is None else self.entries.real[doing.view]

    def idle(self, now: Situation, worker: int) -> Next:
        """Take a message, the first or one that was fetched before it; or sweep."""
        for message in now.queues[worker][:2]:
            yield f"takes {message}", self.looks(now, worker, message)
        head = self.head(now)
        is_claimed = head is not None and head.status is Status.WORKING
        if not now.queues[worker] and (now.parked or is_claimed):
            yield "sweeps", self.does(now, worker, Doing("drain"))

    def looks(self, now: Situation, worker: int, message: int | None) -> Situation:
        """Read the head for a message; it may be old when it is used."""
        if message is None:
            return self.does(now, worker, Doing("drain"))
        view = now.journal[-1] if now.journal else None
        return self.does(now, worker, Doing("act", message, view))

    def act(self, now: Situation, worker: int) -> Next:
        """Do what the decision says."""
        doing = now.workers[worker]
        if doing.message is None:
            raise ValueError("a worker without a message acts")
        message, view = MESSAGES[doing.message], self.view(doing)
        match self.decide(view, message):
            case Proceed():
                is_parked = doing.message in now.parked
                yield from self.process(now, worker, view, message, from_parked=is_parked)
            case Duplicate():
                yield "finds it processed", self.does(now, worker, Doing("drain", doing.message))
            case Gap():
                yield "waits", self.looks(now, worker, doing.message)
                yield from self.park(now, worker, view, message)
            case Busy(_, same):
                yield "waits", self.looks(now, worker, doing.message)
                yield from self.take_over(now, worker)
                if same:
                    yield "leaves it to the claim", self.settled(now, worker)
                else:
                    yield from self.park_beside(now, worker, message)
            case other:
                raise ValueError(f"nobody asked for {other}")

    def process(
        self,
        now: Situation,
        worker: int,
        view: Entry | None,
        message: Message,
        *,
        from_parked: bool,
    ) -> Next:
        """Create the entry after the head that was read, or its claim."""
        if (view.position + 1 if view else 0) != len(now.journal):
            yield "is too late", self.looks(now, worker, now.workers[worker].message)
            return
        opened = next_entry.open_entry(
            self.entry_input(worker, view, message, from_parked=from_parked)
        )
        doing = now.workers[worker]
        if message.type == "effectful":
            entry, then = next_entry.make_claim(opened, LEASE), "work"
        else:
            entry, then = completed(opened), "dispatch"
        after = self.appended(now, entry)
        if after is None:
            yield "is too late", self.looks(now, worker, doing.message)
            return
        at = Doing(then, doing.message, None, entry.position, entry.attempt.id)
        yield f"creates {entry.position}", self.does(after, worker, at)

    def entry_input(
        self, worker: int, view: Entry | None, message: Message, *, from_parked: bool = False
    ) -> EntryInput:
        """What the engine's builders need."""
        return EntryInput(view, message, attempt_of(worker, 0), lagging_regions(view), from_parked)

    def appended(self, now: Situation, entry: Entry) -> Situation | None:
        """The situation with one more entry; None where the position is taken."""
        if entry.position != len(now.journal):
            return None
        sequence = entry.identities[0].number.sequence
        parked = now.parked
        if entry.status is Status.PARKED:
            if sequence in parked:
                return None
            parked |= {sequence}
        if entry.from_parked:
            if sequence not in parked:
                return None
            parked -= {sequence}
        journal = (*now.journal[:-1], *(self.supersede(key) for key in now.journal[-1:]))
        return now._replace(journal=(*journal, self.entries.key(entry)), parked=parked)

    def supersede(self, key: Key) -> Key:
        """An entry that is no head any more: nothing matters but its effect and its outbox."""
        if key not in self.superseded:
            entry = replace(self.entries.real[key], cursors={}, parked={})
            self.superseded[key] = self.entries.key(entry)
        return self.superseded[key]

    def replaced(self, now: Situation, entry: Entry) -> Situation:
        """The situation with an entry in another version."""
        journal = (*now.journal[: entry.position], self.entries.key(entry))
        return now._replace(journal=journal + now.journal[entry.position + 1 :])

    def delivered(self, now: Situation, position: int) -> Situation:
        """The situation in which an entry's outputs were sent and acknowledged."""
        key = now.journal[position]
        if key not in self.acknowledged:
            entry = self.entries.real[key]
            outbox = entry.outbox.without(DESTINATIONS)
            self.acknowledged[key] = self.entries.key(replace(entry, outbox=outbox))
        journal = (*now.journal[:position], self.acknowledged[key], *now.journal[position + 1 :])
        return sent(now._replace(journal=journal), position)

    def park(self, now: Situation, worker: int, view: Entry | None, message: Message) -> Next:
        """Keep the message beside the journal."""
        number = now.workers[worker].message
        after = self.appended(now, next_entry.park(self.entry_input(worker, view, message)))
        if after is not None:
            yield "parks it", self.does(after, worker, Doing("drain", number))
        elif number in now.parked:
            yield "finds it parked", self.does(now, worker, Doing("drain", number))

    def park_beside(self, now: Situation, worker: int, message: Message) -> Next:
        """Let the message wait for a claim that is still there."""
        head, number = self.head(now), now.workers[worker].message
        if head is None or head.status is not Status.WORKING or message.number is None:
            return
        if number in now.parked:
            yield "finds it parked", self.settled(now, worker)
            return
        # The store's clock plays no part here: any time will do for the claim.
        beside, _ = next_entry.park_beside(head, 0.0, message)
        after = self.replaced(now, beside)
        after = after._replace(parked=after.parked | {message.number.sequence})
        yield "parks it beside the claim", self.settled(after, worker)

    def take_over(self, now: Situation, worker: int) -> Next:
        """Take a claim whose owner is dead, or slower than its lease."""
        head = self.head(now)
        if head is None or head.status is not Status.WORKING:
            return
        owners = [doing for doing in now.workers if doing.attempt == head.attempt.id]
        if owners and not now.slow:
            return
        attempt = attempt_of(worker, head.lease.tries if head.lease else 0)
        after = self.replaced(now, next_entry.take_over_claim(head, attempt))
        after = after._replace(slow=now.slow - bool(owners))
        doing = Doing("work", now.workers[worker].message, None, head.position, attempt.id)
        yield "takes over", self.does(after, worker, doing)

    def work(self, now: Situation, worker: int) -> Next:
        """End the claim, if it is still this attempt's."""
        doing = now.workers[worker]
        stored = self.entries.real[now.journal[doing.at]]
        if stored.status is not Status.WORKING or stored.attempt.id != doing.attempt:
            yield "has lost its claim", self.looks(now, worker, doing.message)
            return
        after = self.replaced(now, completed(stored))
        yield "ends its claim", self.does(after, worker, doing._replace(step="dispatch"))

    def dispatch(self, now: Situation, worker: int) -> Next:
        """Send the outputs to the regions that miss nothing before them; or fail on the way."""
        doing = now.workers[worker]
        entry = self.entries.real[now.journal[doing.at]]
        then = Doing("drain", doing.message)
        yield "sends nothing", self.does(now, worker, then)
        due = [r for r in entry.outbox.regions if r not in entry.lagging]
        if due:
            yield "sends", self.does(sent(now, doing.at), worker, then)
            yield "sends and acknowledges", self.does(self.delivered(now, doing.at), worker, then)

    def drain(self, now: Situation, worker: int) -> Next:
        """Look for what is parked and whose turn has come; where there is none, settle."""
        head, doing = self.head(now), now.workers[worker]
        if head is not None and head.status is Status.WORKING:
            yield from self.take_over(now, worker)
        elif head is not None and (following := cursor_of(head, GROUP).next) in now.parked:
            decision = self.decide(head, MESSAGES[following], from_parked=True)
            then = Doing("take", doing.message, now.journal[-1], following)
            if isinstance(decision, Proceed):
                yield f"finds {following} parked", self.does(now, worker, then)
                return
        yield "settles", self.settled(now, worker)

    def take(self, now: Situation, worker: int) -> Next:
        """Give a parked message its entry."""
        doing = now.workers[worker]
        message = MESSAGES[doing.at]
        yield from self.process(now, worker, self.view(doing), message, from_parked=True)

    def settled(self, now: Situation, worker: int) -> Situation:
        """The message leaves its queue."""
        message = now.workers[worker].message
        queue = tuple(m for m in now.queues[worker] if m != message)
        return self.does(now._replace(queues=put(now.queues, worker, queue)), worker, Doing())

    def sweep(self, now: Situation) -> Next:
        """Deliver the oldest outbox that is pending."""
        for position, key in enumerate(now.journal):
            if self.entries.real[key].outbox.regions:
                yield f"the sweep delivers {position}", self.delivered(now, position)
                break


def completed(opened: Entry) -> Entry:
    """The entry after its handler ran, with an output that is pending."""
    output = replace(MESSAGES[0], id=f"output-{opened.identities[0].id}")
    outbox = Outbox((DestinationBatch("out", (output,)),), DESTINATIONS)
    return next_entry.complete(opened, HandlerResult({}, outbox.batches, {}, {}), outbox)

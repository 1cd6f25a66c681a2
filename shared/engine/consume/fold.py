"""Run several messages of a session one after another, as one entry: one write for all of them.

Folding reads and writes nothing. It is an optimisation and decides nothing: a message that has to
wait, fails, calls the outside or does not fit ends the fold, and whoever folds takes it alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.decision import Proceed, decide
from shared.domain.handler import HandlerInput, Handlers, Kind
from shared.domain.journal import ARRIVALS, Entry, KeptInput
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX, Outbox
from shared.domain.producer import HTTP_SOURCE
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.handle.handle import run_pure
from shared.engine.worker import Policy
from shared.storage.limits import fits_entry

# So that what an entry keeps of its messages stays small beside its state.
MESSAGES_MAX = 100
# Markers of messages without numbers, and evicted cursors, that the batch of a fold writes.
MARKERS_MAX = 35
EVICTED_MAX = 60


class Folder:
    """Folds messages for one application's handlers; outputs are for these regions."""

    def __init__(
        self, handlers: Handlers, regions: tuple[str, ...], body_bytes_max: int, policy: Policy
    ) -> None:
        self.handlers = handlers
        self.regions = regions
        self.body_bytes_max = body_bytes_max
        self.pure_seconds = policy.pure_seconds
        self.keeps_inputs = policy.keeps_inputs

    def fold(
        self, made_from: EntryInput, messages: Sequence[Message], given: HandlerInput
    ) -> Entry | None:
        """The entry of the first messages, as far as all goes well; None for not even one.

        `made_from` is that of the first message, and `given` is what comes after its head.
        """
        head = made_from.head
        folded: Entry | None = None
        for message in messages[:MESSAGES_MAX]:
            # The entry so far stands for the head, though it is not stored: the next handler gets
            # its state and numbers, and `decide` checks the next message against its cursors.
            if folded is not None:
                made_from = replace(made_from, head=folded)
                given = HandlerInput(
                    folded.state or {},
                    folded.produced,
                    model=folded.model,
                    reminders=folded.reminders,
                    base=given.base,
                )
            after = self.complete_alone(replace(made_from, message=message), given)
            if after is None:
                break
            entry = next_entry.fold(folded, after) if folded else after
            # A fold never stages outputs: what no longer fits begins the next entry. So does what
            # would evict the cursor of one of its own groups, or too many for one batch.
            markers = sum(one.number.group == ARRIVALS for one in entry.identities)
            if (
                not fits_entry(entry.outbox.messages)
                or (folded and not fits_entry([one.message for one in entry.inputs if one]))
                or not keeps_cursors(head, entry)
                or markers > MARKERS_MAX
            ):
                break
            folded = entry
        # Of all the states that came in between, only the last one is written.
        return next_entry.shorten_state(folded) if folded and folded.state_apart else folded

    def complete_alone(self, made_from: EntryInput, given: HandlerInput) -> Entry | None:
        """The entry of one more message; None where the message has to be taken alone."""
        message, head = made_from.message, made_from.head
        if (
            message.type == TOMBSTONE_TYPE
            or self.handlers.kind_of(message.type) not in (Kind.PURE, Kind.DETERMINISTIC)
            or lacks_cursor(head, message)
            or next_entry.explain_cancellation(made_from) is not None
            or not isinstance(decide(head, message, from_parked=made_from.from_parked), Proceed)
        ):
            return None
        try:
            handler = self.handlers.of(message.type, message.session)
            here = self.handlers.by_type
            most, seconds = self.body_bytes_max, self.pure_seconds
            result = run_pure(handler, given, message, here, seconds, most)
        except Exception:
            # Run again alone, where it becomes a fault. A pure handler may run any number of times.
            return None
        if result.replied_to is not None:
            # Whether that queue may be answered to is checked where a message is taken alone.
            return None
        if result.alert is not None:
            # An entry keeps one alert, and whose it is has to be plain.
            return None
        if result.answer is not None and message.source != HTTP_SOURCE:
            # It would lie in the identity. A release that looks for it in the entry alone would
            # take a refused step of a saga for done.
            return None
        # Those of a deterministic handler are kept as well: a fold has no one message to run again.
        outbox = Outbox(result.batches, self.regions) if result.batches else NO_OUTBOX
        entry = next_entry.complete(next_entry.open_entry(made_from), result, outbox)
        if self.keeps_inputs:
            kept = KeptInput(message, result.captured)
            entry = next_entry.keep_input(entry, kept, is_whole=handler.archived)
        return entry


def lacks_cursor(head: Entry | None, message: Message) -> bool:
    """Return whether the cursor of the message's group may lie beside the journal, unread."""
    number = message.number
    if head is None or number is None or not head.has_evicted:
        return False
    return number.group not in head.cursors


def keeps_cursors(head: Entry | None, entry: Entry) -> bool:
    """Return whether an entry names its messages' cursors, and evicts no more than it may."""
    is_whole = all(identity.number.group in entry.cursors for identity in entry.identities)
    evicted = next_entry.evicted_cursors(head, entry) if head and entry.has_evicted else {}
    return is_whole and len(evicted) <= EVICTED_MAX

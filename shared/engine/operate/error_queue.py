"""Look into the error queue, and end what it holds: once, whoever presses where.

The error queue is read without taking anything: it keeps what it has for whoever else reads it.
What is open is listed by the journal, whole unless it is large: for a look into the queue the
broker has to hold each session. A report has the same id in every region's error queue, so who
sends it again or dismisses it is recorded under that id, beside the journals, before anything is
sent. Then the message is numbered by the app, under an id that follows from the report's: begun
twice, it is one message.

A copy of a fault is not sent again. Its message is in the journal, and a decision runs it there.
"""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from shared.domain.decision import is_same_place
from shared.domain.errors import InvalidMessage, NotRepeatable, Unavailable
from shared.domain.journal import (
    WHO_CHARACTERS_MAX,
    WHY_CHARACTERS_MAX,
    Repetition,
    dismissal,
)
from shared.domain.message import (
    OWN_SOURCE,
    Message,
    derive_id,
    digest_content,
    parse_moment,
    refuse_reserved,
    require_line,
)
from shared.domain.outbox import AppQueues
from shared.domain.producer import Draft
from shared.domain.reports import REJECTED_TYPE
from shared.domain.wire import (
    OPTIONAL,
    TRACE_HEADER,
    attributes_of,
    from_properties,
    read_traceparent,
    stand_in,
)
from shared.engine.handle.handle import parse_body
from shared.engine.publish.ingest import KEY_SECONDS, Ingest
from shared.engine.worker import Worker
from shared.ports import BrowsedMessage, Browser

# So many messages of the queue are looked at for one list, and so many records read at once.
LOOKED_MAX = 2_000
READ_AT_ONCE = 16
# The attributes of a rejected delivery that its repetition has as well, and what they are in a
# draft. A reminder is none: what was to come at a certain time is sent now.
REPEATED = {name: field for name, field in OPTIONAL.items() if name != "reminder"} | {
    "source": "source",
    TRACE_HEADER: "traceparent",
}
# Before the id of what was begun is forgotten: another worker's clock may be an hour off.
FINISH_SECONDS_MAX = KEY_SECONDS - 3600.0


@dataclass(frozen=True, slots=True)
class RepeatRequest:
    """A person's decision about a report; what is None is as the rejected delivery had it.

    What follows the body is named as the attributes are, and left out where it is empty.
    """

    session: str
    report: str
    sequence: int
    who: str
    why: str
    to: str | None = None
    type: str | None = None
    body: bytes | None = None
    time: str | None = None
    source: str | None = None
    replyto: str | None = None
    replysession: str | None = None
    correlationid: str | None = None
    traceparent: str | None = None


class Rank(IntEnum):
    """The place of a report among the others: what asks for somebody here comes first."""

    OPEN = 0  # a delivery that no journal took
    NOTED = 1  # what its session asks for by a fault, or nothing of ours
    ENDED = 2  # sent again, or dismissed


class ReportPlace(NamedTuple):
    """The place of a report in the list: by rank, then the oldest first."""

    rank: int
    enqueued: float
    session: str
    report: str


@dataclass(frozen=True)
class QueuedReport:
    """One message of the error queue, and who sent it again or dismissed it, where one did."""

    queued: BrowsedMessage
    document: Mapping[str, Any]
    repetition: Repetition | None

    @property
    def is_repeatable(self) -> bool:
        """Return whether it holds a rejected delivery whole, body and properties."""
        said = self.document
        whole = said.get("from") == 0 and isinstance(said.get("properties"), dict)
        return (
            self.queued.type == REJECTED_TYPE
            and whole
            and isinstance(said.get("body"), str)
            and len(self.body) == said.get("of")
        )

    @cached_property
    def stand_in(self) -> Message | None:
        """The message that took the number of its delivery, where that could not be read."""
        if not self.is_repeatable:
            return None
        properties = dict(self.document["properties"])
        try:
            from_properties(properties, self.body)
        except InvalidMessage as error:
            return stand_in(properties, self.queued.id, str(error))
        return None

    @cached_property
    def place(self) -> ReportPlace:
        # Of a large delivery the first part is listed.
        is_first = self.document.get("from", 0) == 0 and "properties_text" not in self.document
        is_open = self.queued.type == REJECTED_TYPE and is_first and self.stand_in is None
        rank = Rank.OPEN if is_open else Rank.NOTED
        if self.repetition is not None and self.repetition.is_done:
            rank = Rank.ENDED
        enqueued = self.queued.enqueued_at
        seconds = enqueued.timestamp() if enqueued else 0.0
        return ReportPlace(rank, seconds, self.queued.session, self.queued.id)

    @property
    def body(self) -> bytes:
        return base64.b64decode(str(self.document.get("body") or ""))

    def property_of(self, name: str) -> str | None:
        """A CloudEvents attribute of the rejected delivery, where it is text."""
        properties = dict(self.document.get("properties") or {})
        found = attributes_of(properties, is_strict=False).get(name)
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class QueuePage:
    """A part of the list, and the place to go on from; None at its end.

    `is_all` says that the look saw the whole queue, or the whole session; where it did not, the
    next look at the session goes on above the number `above`. `counts` has how many it saw of each
    rank, whichever of them are in the list.
    """

    reports: Sequence[QueuedReport]
    after: ReportPlace | None
    is_all: bool
    above: int | None
    counts: Mapping[Rank, int]


class ErrorQueue:
    """The error queue of this app's own region."""

    def __init__(
        self, worker: Worker, browser: Browser | None, ingest: Ingest, queues: AppQueues
    ) -> None:
        self.worker = worker
        self.journal = worker.journal
        self.browser = browser
        self.ingest = ingest
        self.queue = queues.errors

    async def browse(
        self,
        session: str | None = None,
        *,
        above: int = 0,
        after: ReportPlace | None = None,
        ranks: Collection[Rank] = frozenset(Rank),
        limit: int,
    ) -> QueuePage:
        """A page of the reports of all sessions, or of one session above a sequence number.

        Each page is a new look at the whole, because the broker has the sessions in no order. The
        two reports of a delivery that both regions rejected are one. Raises Unavailable.
        """
        region, browser = self.worker.owner.region, self.browser
        if browser is None:
            raise Unavailable("this worker cannot look into queues")
        if session is not None:
            found = await browser.browse_session(region, self.queue, session, above, LOOKED_MAX)
        else:
            found = await browser.browse_sessions(region, self.queue, LOOKED_MAX)
        copies: dict[tuple[str, str], BrowsedMessage] = {}
        for one in found.messages:
            copies.setdefault((one.session, one.id), one)
        slots = asyncio.Semaphore(READ_AT_ONCE)
        reports = await asyncio.gather(*(self.read(one, slots) for one in copies.values()))
        counts = Counter(Rank(one.place.rank) for one in reports)
        left = sorted(reports, key=lambda one: one.place)
        left = [one for one in left if one.place.rank in ranks]
        if after is not None:
            left = [one for one in left if one.place > after]
        following = left[limit - 1].place if len(left) > limit else None
        seen = found.messages[-1].sequence if session and found.messages else None
        above_next = None if found.is_all else seen
        return QueuePage(left[:limit], following, found.is_all, above_next, counts)

    async def list_open(
        self, session: str | None = None, *, after: ReportPlace | None = None, limit: int
    ) -> QueuePage:
        """A page of the reports of any region that nobody has ended, the oldest first.

        It holds no session, and costs one search and a read for each report. Raises Unavailable.
        """
        place = after and (after.enqueued, after.session, after.report)
        found = await self.journal.open_reports(place, limit + 1, session)
        slots = asyncio.Semaphore(READ_AT_ONCE)
        shown = await asyncio.gather(*(self.read(one, slots) for one in found[:limit]))
        ended = [one for one in shown if one.place.rank is Rank.ENDED]
        # Its end was recorded, and a crash came before this, or a copy of the delivery after it.
        for one in ended:
            await self.journal.close_report(one.queued.session, one.queued.id)
        left = [one for one in shown if one not in ended]
        following = shown[-1].place if len(found) > limit else None
        return QueuePage(left, following, is_all=True, above=None, counts={})

    async def read(self, queued: BrowsedMessage, slots: asyncio.Semaphore) -> QueuedReport:
        """A report with what is recorded of it."""
        async with slots:
            repetition = await self.journal.repetition(queued.session, queued.id)
        return QueuedReport(queued, read_report(queued.body), repetition)

    async def send_again(self, request: RepeatRequest) -> Message:
        """The message that was sent. Raises NotRepeatable, and as Ingest.take does.

        Sent by another decision before, nothing is sent: NotRepeatable names that decision. The
        same decision again finishes what it began, and changes nothing where it is finished.
        """
        require_line("name of who decides", request.who, WHO_CHARACTERS_MAX)
        require_line("reason", request.why, WHY_CHARACTERS_MAX)
        report = await self.find(request)
        message = self.make_message(report, request)
        await self.require_ended(report)
        digest = digest_content(
            " ".join([message.session, message.type, *list_given(request)]), message.body
        )
        wanted = Repetition(request.who, request.why, self.worker.clock.today(), digest)
        stored = await self.journal.begin_repetition(request.session, request.report, wanted)
        if stored.is_dismissed:
            raise NotRepeatable(f"{stored.who} has dismissed it before: {stored.why}")
        if stored.digest != digest:
            raise NotRepeatable(f"{stored.who} decided otherwise before: {stored.why}")
        if stored.is_done:
            if (stored.who, stored.why) == (request.who, request.why):
                return message
            raise NotRepeatable(f"{stored.who} has sent it again before: {stored.why}")
        if self.is_too_late(stored):
            raise NotRepeatable(
                f"{stored.who} began to send it again, and nobody knows any more whether it was"
                f" sent: look at session {message.session!r}, send its content by hand where it is"
                " missing, and dismiss the report"
            )
        draft = Draft(
            message.id,
            message.type,
            message.body,
            **{field: getattr(message, field) for field in REPEATED.values()},
        )
        sent = await self.ingest.take(message.session, draft)
        await self.journal.end_repetition(request.session, request.report)
        await self.journal.close_report(request.session, request.report)
        return sent

    async def require_ended(self, report: QueuedReport) -> None:
        """Raise NotRepeatable while what took the number of the delivery stops its session."""
        message = report.stand_in
        if message is None or message.number is None:
            return
        head = await self.worker.read_head(message.session)
        halt = head.halt if head else None
        if halt is not None and is_same_place(halt.number, message.number):
            raise NotRepeatable(
                f"its number stops session {message.session!r} at entry {halt.at}: edit that, and"
                " what you give takes its place; or skip that, and then send this again"
            )

    async def dismiss(self, request: RepeatRequest) -> Repetition:
        """Record that nothing is to be done about a report: the record, also when it is repeated.

        Raises NotRepeatable where it is not there, or was ended by another decision.
        """
        require_line("name of who decides", request.who, WHO_CHARACTERS_MAX)
        require_line("reason", request.why, WHY_CHARACTERS_MAX)
        await self.find(request)
        wanted = dismissal(request.who, request.why, self.worker.clock.today())
        stored = await self.journal.begin_repetition(request.session, request.report, wanted)
        if stored.is_done:
            await self.journal.close_report(request.session, request.report)
        elif self.is_too_late(stored):
            # Nobody can finish it any more, so nobody is in the way.
            await self.journal.end_repetition(request.session, request.report, wanted)
            await self.journal.close_report(request.session, request.report)
            return wanted
        if not stored.is_dismissed:
            done = "has sent it again before" if stored.is_done else "began to send it again"
            raise NotRepeatable(f"{stored.who} {done}: {stored.why}")
        if (stored.who, stored.why) != (request.who, request.why):
            raise NotRepeatable(f"{stored.who} has dismissed it before: {stored.why}")
        return stored

    def is_too_late(self, begun: Repetition) -> bool:
        return self.worker.clock.today() - begun.since > FINISH_SECONDS_MAX

    async def preview(self, request: RepeatRequest) -> Message:
        """Return the message that would be sent; raises as `make_message` does."""
        return self.make_message(await self.find(request), request)

    async def find(self, request: RepeatRequest) -> QueuedReport:
        """The report that is meant; raises NotRepeatable where it is not there.

        One that the journal has is not looked for in the queue, unless the request says where.
        """
        kept = await self.journal.report(request.session, request.report)
        if kept is not None:
            listed = QueuedReport(kept, read_report(kept.body), None)
            if listed.is_repeatable or not request.sequence:
                return listed
        region, browser = self.worker.owner.region, self.browser
        if browser is None:
            raise Unavailable("this worker cannot look into queues")
        after = max(0, request.sequence - 1)
        found = await browser.browse_session(region, self.queue, request.session, after, 1)
        for one in found.messages:
            if one.id == request.report:
                return QueuedReport(one, read_report(one.body), None)
        raise NotRepeatable("this report is not in the error queue of this region any more")

    def make_message(self, report: QueuedReport, request: RepeatRequest) -> Message:
        """Return the message to send; raises NotRepeatable, or as for any from outside."""
        if not report.is_repeatable:
            raise NotRepeatable(
                "only a rejected delivery that is whole in one report can be sent again; a fault is"
                " decided about in its session"
            )
        session = request.to or report.property_of("partitionkey")
        message_type = request.type or report.property_of("type")
        if not session or not message_type:
            raise InvalidMessage("the delivery names no session or no type: say to and type")
        said = {name: getattr(request, name) for name in REPEATED}
        carried: dict[str, Any] = {
            field: (report.property_of(name) if said[name] is None else said[name]) or None
            for name, field in REPEATED.items()
        }
        carried["source"] = carried["source"] or OWN_SOURCE
        carried["traceparent"] = read_traceparent(carried["traceparent"])
        body = report.body if request.body is None else request.body
        message = Message(
            derive_id("again", request.report), session, message_type, body, **carried
        )
        if message.time is not None:
            try:
                parse_moment(message.time)
            except ValueError:
                raise InvalidMessage(
                    f"the delivery's time {message.time!r} is not ISO 8601: say time"
                ) from None
        refuse_reserved(message.session, message.type)
        parse_body(self.worker.handlers.of(message.type, message.session), message)
        return message


def list_given(request: RepeatRequest) -> list[str]:
    """The attributes that a person gives, as they are compared."""
    said = ((name, getattr(request, name)) for name in REPEATED)
    return [f"{name}={value}" for name, value in said if value is not None]


def read_report(body: bytes) -> Mapping[str, Any]:
    """Return the content of a report; nothing where it is none of ours."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}

"""Look into the error queue, and send a rejected delivery again: once, whoever presses where.

The error queue is read without taking anything: it keeps what it has for whoever else reads it. A
report has the same id in every region's error queue, so who sends it again is recorded under that
id, beside the journals, before anything is sent. Then the message is numbered by the app, under an
id that follows from the report's: begun twice, it is one message.

A copy of a fault is not sent again. Its message is in the journal, and a decision runs it there.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.domain.errors import InvalidMessage, NotRepeatable, Unavailable
from shared.domain.journal import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX, Repetition
from shared.domain.message import (
    Message,
    derive_id,
    digest_content,
    refuse_reserved,
    require_line,
)
from shared.domain.outbox import AppQueues
from shared.domain.producer import Draft
from shared.domain.reports import REJECTED_TYPE
from shared.domain.wire import PREFIX
from shared.engine.handle.handle import parse_body
from shared.engine.publish.ingest import KEY_SECONDS, Ingest
from shared.engine.worker import Worker
from shared.ports import BrowsedMessage, Browser

# Before the id of what was begun is forgotten: another worker's clock may be an hour off.
FINISH_SECONDS_MAX = KEY_SECONDS - 3600.0


@dataclass(frozen=True, slots=True)
class RepeatRequest:
    """A person's decision about a report; what is None is as the rejected delivery had it."""

    session: str
    report: str
    sequence: int
    who: str
    why: str
    to: str | None = None
    type: str | None = None
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class QueuedReport:
    """One message of the error queue, and who sent it again, where somebody did."""

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

    @property
    def body(self) -> bytes:
        return base64.b64decode(str(self.document.get("body") or ""))

    def property_of(self, name: str) -> str | None:
        """A CloudEvents attribute of the rejected delivery, where it is text."""
        found = dict(self.document.get("properties") or {}).get(PREFIX + name)
        return found if isinstance(found, str) else None


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
        self, session: str | None = None, *, after: int = 0, skip: int = 0, limit: int
    ) -> Sequence[QueuedReport]:
        """Reports of one session behind a sequence number, or the first ones of several sessions.

        Without a session `skip` passes over so many of those that have a report; their order is
        the broker's. Raises Unavailable.
        """
        region = self.worker.owner.region
        if self.browser is None:
            raise Unavailable("this worker cannot look into queues")
        if session is not None:
            found = await self.browser.browse_session(region, self.queue, session, after, limit)
        else:
            found = await self.browser.browse_sessions(region, self.queue, skip, limit)
        return await asyncio.gather(*map(self.read, found))

    async def read(self, queued: BrowsedMessage) -> QueuedReport:
        """A report with what is recorded of it."""
        repetition = None
        if queued.type == REJECTED_TYPE:
            repetition = await self.journal.repetition(queued.session, queued.id)
        return QueuedReport(queued, read_report(queued.body), repetition)

    async def send_again(self, request: RepeatRequest) -> Message:
        """The message that was sent. Raises NotRepeatable, and as Ingest.take does.

        Sent by another decision before, nothing is sent: NotRepeatable names that decision. The
        same decision again finishes what it began, and changes nothing where it is finished.
        """
        require_line("name of who decides", request.who, WHO_CHARACTERS_MAX)
        require_line("reason", request.why, WHY_CHARACTERS_MAX)
        message = await self.preview(request)
        digest = digest_content(f"{message.session} {message.type}", message.body)
        wanted = Repetition(request.who, request.why, self.worker.clock.today(), digest)
        stored = await self.journal.begin_repetition(request.session, request.report, wanted)
        if stored.digest != digest:
            raise NotRepeatable(f"{stored.who} decided otherwise before: {stored.why}")
        if stored.is_done:
            if (stored.who, stored.why) == (request.who, request.why):
                return message
            raise NotRepeatable(f"{stored.who} has sent it again before: {stored.why}")
        if self.worker.clock.today() - stored.since > FINISH_SECONDS_MAX:
            raise NotRepeatable(
                f"{stored.who} began to send it again, and nobody knows any more whether it was"
                f" sent: look at session {message.session!r}, and send its content by hand"
            )
        draft = Draft(message.id, message.type, message.body)
        sent = await self.ingest.take(message.session, draft)
        await self.journal.end_repetition(request.session, request.report)
        return sent

    async def preview(self, request: RepeatRequest) -> Message:
        """Return the message that would be sent; raises as `make_message` does."""
        found = await self.browse(request.session, after=max(0, request.sequence - 1), limit=1)
        report = next((one for one in found if one.queued.id == request.report), None)
        if report is None:
            raise NotRepeatable("this report is not in the error queue of this region any more")
        return self.make_message(report, request)

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
        message = Message(
            id=derive_id("again", request.report),
            session=session,
            type=message_type,
            body=report.body if request.body is None else request.body,
        )
        refuse_reserved(message.session, message.type)
        parse_body(self.worker.handlers.of(message.type, message.session), message)
        return message


def read_report(body: bytes) -> Mapping[str, Any]:
    """Return the content of a report; nothing where it is none of ours."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}

"""Send what no journal can take to the error queue, whole, so that it never blocks a session."""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from shared.domain.errors import OutcomeUnknown
from shared.domain.message import ID_CHARACTERS_MAX, Message, cut_text, derive_id
from shared.domain.outbox import ERRORS
from shared.domain.reports import REJECTED_TYPE, shorten
from shared.domain.wire import stand_in
from shared.engine.dispatch.deliver import Delivery
from shared.storage.journal import Journal

NO_SESSION = "unknown"
# The part of what a message takes that a piece of the delivery has, of which base64 makes a third
# more, and the part that the properties have beside it. Larger ones travel in parts of their own,
# as they may take a whole message.
PIECE_PART, PROPERTIES_PART = 0.45, 0.2


class Rejecter:
    """Names the end of deliveries that are not messages of ours."""

    def __init__(
        self,
        journal: Journal,
        delivery: Delivery,
        consume: Callable[[Message], Awaitable[object]],
    ) -> None:
        self.journal = journal
        self.delivery = delivery
        self.consume = consume

    async def reject_unreadable(
        self, session: str | None, properties: Mapping[str, object], body: bytes, reason: str
    ) -> Message:
        """Report a delivery that cannot be read, and use its number up, where it has one.

        Otherwise its session would wait for a number that came. Every copy of it is the same to the
        journal; other content under its number stays what it is. Raises as `reject` does, and what
        the store raises.
        """
        # The journal first: while it does not answer, each delivery would add another report. After
        # a crash in between the delivery comes again, and finds its entry.
        reports = self.build(session, properties, body, reason)
        message = stand_in(properties, reports[0].id, reason)
        if message is None:
            await self.journal.keep_report(reports[0])
        else:
            # Its session asks for somebody, so the report is not listed besides.
            await self.consume(message)
        return await self.send(reports)

    async def reject(
        self, session: str | None, properties: Mapping[str, object], body: bytes, reason: str
    ) -> Message:
        """Send body, properties and reason to the error queue of every region that can be reached.

        The report has the same id for every copy of the same delivery; a large one has several
        parts, and the first is returned, which the journal lists until somebody has ended it.
        Raises OutcomeUnknown when no region surely has it, and what the store raises; the delivery
        must then stay in its queue.
        """
        reports = self.build(session, properties, body, reason)
        await self.journal.keep_report(reports[0])
        return await self.send(reports)

    def build(
        self, session: str | None, properties: Mapping[str, object], body: bytes, reason: str
    ) -> list[Message]:
        most = self.delivery.queues.body_bytes_max
        return build_reports(session, properties, body, reason, most)

    async def send(self, reports: Sequence[Message]) -> Message:
        outbox = self.delivery.address_all(ERRORS, reports)
        if not await self.delivery.deliver(outbox):
            raise OutcomeUnknown("no region surely took the rejected delivery")
        return reports[0]


def build_reports(
    session: str | None,
    properties: Mapping[str, object],
    body: bytes,
    reason: str,
    bytes_max: int,
) -> list[Message]:
    """The report of a rejected delivery, in parts of at most so many bytes.

    The body is base64, as it may be anything.

    Large properties follow in parts of their own, as pieces of the JSON text that they are.
    """
    kept = json.dumps(dict(properties), sort_keys=True, default=str)
    identity = derive_id("rejected", kept, hashlib.sha256(body).hexdigest())
    piece_bytes, fits = int(PIECE_PART * bytes_max), len(kept) <= PROPERTIES_PART * bytes_max
    common = {"reason": shorten(reason)}
    shown: dict[str, object] = {"properties": json.loads(kept)} if fits else {}
    parts: dict[str, dict[str, object]] = {}
    for start in range(0, max(1, len(body)), piece_bytes):
        piece = base64.b64encode(body[start : start + piece_bytes]).decode()
        parts[str(start)] = {**shown, "body": piece, "from": start, "of": len(body)}
    for start in range(0, 0 if fits else len(kept), piece_bytes):
        piece = kept[start : start + piece_bytes]
        place = {"from": start, "of": len(kept)}
        parts[f"properties {start}"] = {"properties_text": piece, **place}
    return [
        Message(
            id=derive_id(identity, name),
            session=cut_text(session or "", ID_CHARACTERS_MAX) or NO_SESSION,
            type=REJECTED_TYPE,
            body=json.dumps({**common, **part}, sort_keys=True).encode(),
        )
        for name, part in parts.items()
    ]

"""What no journal can take goes into the error queue, whole, so that it never blocks a session."""

import base64
import hashlib
import json
from collections.abc import Mapping

from shared.domain.errors import OutcomeUnknown
from shared.domain.message import ID_CHARACTERS_MAX, Message, derived_id
from shared.usecases.deliver import Delivery

NO_SESSION = "unknown"


class Rejecter:
    """Names the end of deliveries that are not messages of ours."""

    def __init__(self, delivery: Delivery, error_queue: str) -> None:
        self.delivery = delivery
        self.error_queue = error_queue

    async def reject(
        self, session: str | None, properties: Mapping[str, object], body: bytes, reason: str
    ) -> Message:
        """Send body, properties and reason to the error queue of every region that can be reached.

        The report has the same id for every copy of the same delivery. Raises OutcomeUnknown when
        no region surely has it; the delivery must then stay in its queue.
        """
        report = rejection(session, properties, body, reason)
        outbox = self.delivery.to_every_region(self.error_queue, [report])
        if not await self.delivery.deliver(outbox):
            raise OutcomeUnknown("no region surely took the rejected delivery")
        return report


def rejection(
    session: str | None, properties: Mapping[str, object], body: bytes, reason: str
) -> Message:
    """The report of a rejected delivery; its body is base64, because it may be anything."""
    kept = json.dumps(dict(properties), sort_keys=True, default=str)
    report = {
        "reason": reason,
        "properties": json.loads(kept),
        "body": base64.b64encode(body).decode(),
    }
    return Message(
        id=derived_id("rejected", kept, hashlib.sha256(body).hexdigest()),
        session=(session or NO_SESSION)[:ID_CHARACTERS_MAX],
        type="lockstep.rejected",
        body=json.dumps(report, sort_keys=True).encode(),
    )

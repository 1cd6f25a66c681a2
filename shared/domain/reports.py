"""Messages that Lockstep itself writes: what became of a message that could not be processed."""

import json
from dataclasses import replace

from shared.domain.message import Message, content_digest, derived_id

FAULT_TYPE = "lockstep.fault"
VOID_TYPE = "lockstep.void"


def fault_report(message: Message, reason: str) -> Message:
    """The copy of a faulted message for the error queue: everything it had, and why it failed."""
    number = message.number
    report = {
        "reason": reason,
        "message": {
            "id": message.id,
            "session": message.session,
            "type": message.type,
            "body": message.body.decode(),
            "time": message.time,
            "number": [number.group, number.level, number.sequence] if number else None,
            "reply_to": message.reply_to,
            "correlation": message.correlation,
        },
    }
    return Message(
        id=derived_id(message.session, message.id, "fault", message.digest),
        session=message.session,
        type=FAULT_TYPE,
        body=json.dumps(report, sort_keys=True, ensure_ascii=False).encode(),
        time=message.time,
    )


def void(message: Message, reason: str) -> Message:
    """What is sent in place of an output that its queue refuses: same id, same number, no content.

    Without it the number would be missing for ever and everything after it would stay parked.
    """
    report = {
        "reason": reason,
        "type": message.type,
        "digest": content_digest(message.type, message.body),
        "bytes": len(message.body),
    }
    return replace(message, type=VOID_TYPE, body=json.dumps(report, sort_keys=True).encode())


def void_reason(message: Message) -> str:
    """Why a voided output never came."""
    try:
        reason = json.loads(message.body).get("reason")
    except (ValueError, AttributeError):
        reason = None
    return f"voided by its sender: {reason or 'no reason given'}"

"""Messages that Lockstep itself writes: what became of a message that could not be processed."""

import json
from dataclasses import replace
from typing import Any

from shared.domain.message import UNPRINTABLE, Message, derive_id, digest_content, stored_bytes
from shared.domain.trace import Trace

FAULT_TYPE = "lockstep.fault"
REJECTED_TYPE = "lockstep.rejected"
TOMBSTONE_TYPE = "lockstep.void"
# What takes the number of a message that came and cannot be read.
UNREADABLE_TYPE = "lockstep.unreadable"
# What an entry names in place of a message that never came.
SKIPPED_TYPE = "lockstep.skipped"
SKIPPED_BODY = b"{}"
SKIPPED_DIGEST = digest_content(SKIPPED_TYPE, SKIPPED_BODY)
# A faulted message, its report and the entry that keeps both must fit into one batch of 2 MB.
REPORTED_BYTES_MAX = 150_000
REASON_CHARACTERS_MAX = 2_000


def report_fault(message: Message, reason: str, raised_at: tuple[str, ...] = ()) -> Message:
    """The copy of a faulted message for the error queue: everything it had, and why it failed.

    `raised_at` is where its handler raised. Of a body too large to travel beside the entry that
    keeps it, only size and digest are named. A message that fails again, for another reason or in
    another place, has another report: one id, one content.
    """
    number, shown_reason = message.number, shorten(reason)
    reported: dict[str, Any] = {
        "id": message.id,
        "source": message.source,
        "session": message.session,
        "type": message.type,
        "time": message.time,
        "number": [number.group, number.level, number.sequence] if number else None,
        "reply_to": message.reply_to,
        "correlation": message.correlation,
    }
    if stored_bytes(message.body) <= REPORTED_BYTES_MAX:
        reported["body"] = message.body.decode()
    else:
        reported |= {"bytes": len(message.body), "digest": message.digest}
    report: dict[str, Any] = {"reason": shown_reason, "message": reported}
    report |= {"raised_at": raised_at} if raised_at else {}
    return Message(
        id=derive_id(*message.identity_parts, "fault", message.digest, shown_reason, *raised_at),
        session=message.session,
        type=FAULT_TYPE,
        body=json.dumps(report, sort_keys=True, ensure_ascii=False).encode(),
        time=message.time,
        traceparent=Trace.of(message).following if message.traceparent else None,
    )


def shorten(reason: str) -> str:
    """A reason that fits beside anything, and is one line of text whatever was put into it.

    A control character is written as in Python: a new line is a backslash and an n.
    """
    short = reason[:REASON_CHARACTERS_MAX]
    short = UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), short)
    return short[:REASON_CHARACTERS_MAX]


def make_tombstone(message: Message) -> Message:
    """Return what replaces an output that its queue refuses: same id, same number, no content.

    Without it the number would be missing for ever and everything after it would stay parked. It
    follows from the message alone, so it has the same bytes whenever and wherever it is sent; the
    queue's reason is kept in the sender's entry.
    """
    report = {
        "reason": "its queue does not take it",
        "type": message.type,
        "digest": message.digest,
        "bytes": len(message.body),
    }
    return replace(message, type=TOMBSTONE_TYPE, body=json.dumps(report, sort_keys=True).encode())


def explain_tombstone(message: Message) -> str:
    """Return why the message that a tombstone stands for never came."""
    return shorten(f"voided by its sender: {read_field(message, 'reason')}")


def describe_unreadable(report: str, reason: str) -> bytes:
    """The body of what takes the number of a message that nobody can read: where it is, and why."""
    return json.dumps({"report": report, "reason": shorten(reason)}, sort_keys=True).encode()


def explain_unreadable(message: Message) -> str:
    """Return why the message that this one stands for cannot be read, and where it is whole."""
    reason, report = read_field(message, "reason"), read_field(message, "report")
    return shorten(
        f"its message cannot be read: {reason}. Report {report} in the error queue has it whole;"
        " an edit with a type and a body takes its place"
    )


def read_field(message: Message, name: str) -> str:
    """A text in the body of a message that may be anybody's, or that there is none."""
    try:
        found = json.loads(message.body).get(name)
    except (ValueError, AttributeError, RecursionError):
        found = None
    return found if isinstance(found, str) and found else f"no {name} given"

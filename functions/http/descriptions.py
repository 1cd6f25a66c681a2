"""The answers of the HTTP triggers about an entry: models of their own, not the document."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from functions.http.requests import SESSION, path_to
from functions.http.responses import STANDSTILL_HELP
from shared.domain.journal import Entry, Resolution
from shared.domain.message import Message
from shared.domain.outbox import Outbox, PendingOutbox, Rerun, Staged
from shared.domain.overview import Attention, RegionRecord
from shared.domain.resolution import verbs_of
from shared.domain.standstill import Standstill
from shared.domain.steps import StepRecord


def describe_entry(entry: Entry) -> dict[str, Any]:
    """An entry as JSON: what it did, what is true after it, and what still waits.

    Fields that say nothing are left out; docs/reference.md lists all of them.
    """
    described: dict[str, Any] = {
        "position": entry.position,
        "session": entry.session,
        "status": entry.status.value,
        "time": format_moment(entry.written_at),
        "messages": [
            {"id": one.id, "type": one.type, "digest": one.digest, **asdict(one.number)}
            | ({"answer": dict(one.answer)} if one.answer else {})
            | ({"saga": one.saga} if one.saga else {})
            for one in entry.identities
        ],
        "cursors": {group: asdict(cursor) for group, cursor in entry.cursors.items()},
        "attempt": entry.attempt.id,
        "owner": asdict(entry.attempt.owner),
        "state": dict(entry.state) if entry.state is not None else None,
        "model": asdict(entry.model) if entry.model else None,
        "state_at": entry.state_at,
        "change": list(entry.change.operations) or None if entry.change else None,
        "reason": entry.reason,
        "raised_at": list(entry.raised_at) or None,
        "message": describe_message(entry.message) if entry.message else None,
        "halted_by": entry.halt.at if entry.halt else None,
        "ended": entry.is_ended or None,
        "resolution": describe_resolution(entry.resolution) if entry.resolution else None,
        "answer": dict(entry.answer) if entry.answer is not None else None,
        "alert": entry.alert,
        "steps": [describe_step(*named) for named in entry.steps.items()] or None,
        "closed": describe_resolution(entry.closed) if entry.closed else None,
        "lease_seconds": entry.lease.seconds if entry.lease else None,
        "tries": entry.lease.tries if entry.lease else None,
        "parked": dict(entry.parked) or None,
        "lagging": list(entry.lagging) or None,
        "outbox": None if entry.outbox.is_empty else describe_outbox(entry.outbox),
    }
    return keep_known(described)


def describe_step(name: str, step: StepRecord) -> dict[str, Any]:
    """Return a step of a handler: what is known of it, and its key at the outside."""
    said = {"name": name, "key": step.key, "status": step.status.value}
    size = step.beside and step.beside.size
    return keep_known(said | {"result": step.result, "result_bytes": size, "reason": step.reason})


def describe_change(entry: Entry, written_at: float) -> dict[str, Any]:
    """Return what a watcher is told of an entry that ended: no bodies, and no state.

    The ids of outputs are there where the entry holds them; `kept` says where they are otherwise.
    """
    outbox, decided = entry.outbox, entry.resolution
    outputs = [message.id for batch in outbox.batches for message in batch.messages]
    return keep_known(
        {
            "position": entry.position,
            "time": format_seconds(written_at),
            "status": entry.status.value,
            "messages": [{"id": one.id, "type": one.type} for one in entry.identities],
            "reason": entry.reason,
            "action": decided.action if decided else None,
            "outputs": outputs,
            "kept": describe_outbox(outbox)["kept"] if outbox.location else None,
        }
    )


def summarise_head(head: Entry) -> dict[str, Any]:
    """Return a session for a list: its newest entry, what halts it, and how much is parked."""
    return keep_known(
        {
            "position": head.position,
            "status": head.status.value,
            "time": format_moment(head.written_at),
            "region": head.attempt.owner.region,
            "halted_by": head.halt.at if head.halt else None,
            "ended": head.is_ended or None,
            "parked": dict(head.parked) or None,
        }
    )


def describe_resolution(resolution: Resolution) -> dict[str, Any]:
    """Return who decided what, why, and about which fault where it was one."""
    return keep_known(asdict(resolution))


def describe_standstill(standstill: Standstill) -> dict[str, Any]:
    """Return a standstill as JSON, with the verbs that end it.

    Each verb is the body of a resolution that only lacks who decided and why.
    """
    missing = {"group": standstill.group, "first": standstill.first, "last": standstill.last}
    described: dict[str, Any] = {
        "kind": standstill.kind.value,
        "session": standstill.session,
        "since": format_seconds(standstill.since),
        "cause": standstill.cause,
        "general_cause": standstill.general_cause,
        "verbs": verbs_of(standstill),
        "resolution": path_to(SESSION, standstill.session, "/resolution"),
        "help": STANDSTILL_HELP.format(kind=standstill.kind.value),
        "position": standstill.position,
        "raised_at": list(standstill.raised_at) or None,
        "parked": standstill.parked or None,
        "outputs": dict(standstill.outputs) or None,
        "regions": list(standstill.regions) or None,
        "queue": standstill.queue,
        "steps": list(standstill.steps) or None,
        "missing": missing if standstill.group is not None else None,
    }
    return keep_known(described)


def describe_overview(record: RegionRecord) -> dict[str, Any]:
    """Return the last look of a sweep as JSON: what needs attention, and open reports and sagas.

    `rate` is what each region processed in a second of the minute before it.
    """
    newest = {region: max(minutes) for region, minutes in record.minutes.items() if minutes}
    return {
        "time": format_seconds(record.at),
        "attention": [
            {"kind": kind.value} | describe_count(one) for kind, one in record.attention.items()
        ],
        "reports": describe_count(record.reports) if record.reports else None,
        "sagas": {name: describe_count(one) for name, one in record.sagas.items()},
        "rate": {region: record.minutes[region][at].rate for region, at in newest.items()},
    }


def describe_count(one: Attention) -> dict[str, Any]:
    return {"count": one.count, "more": one.is_more, "oldest": format_seconds(one.since)}


def describe_outbox(outbox: Outbox) -> dict[str, Any]:
    """An outbox as JSON: where its messages are, and which regions still miss them."""
    match outbox.location:
        case Staged(documents=documents):
            kept: dict[str, Any] = {"kept": "staged", "documents": documents}
        case Rerun():
            kept = {"kept": "made again by the handler"}
        case None:
            kept = {
                "kept": "in the entry",
                "messages": [
                    {"queue": batch.queue, **describe_message(message)}
                    for batch in outbox.batches
                    for message in batch.messages
                ],
            }
    optional: dict[str, Any] = {
        "refused": dict(outbox.refused),
        "delivered": {region: list(queues) for region, queues in outbox.delivered.items()},
        "blocked": {region: dict(reasons) for region, reasons in outbox.blocked.items()},
        "decided": {queue: asdict(decision) for queue, decision in outbox.decided.items()},
        "sent": {
            region: {queue: asdict(part) for queue, part in parts.items()}
            for region, parts in outbox.sent.items()
        },
        "sending": list(outbox.sending),
    }
    present = {name: value for name, value in optional.items() if value}
    return {"pending": list(outbox.regions), **kept, **present}


def describe_parts(pending: PendingOutbox) -> Iterator[dict[str, Any]]:
    """Yield how much each region that an outbox waits for has of it, as far as it says."""
    for region in pending.outbox.regions:
        part = pending.outbox.part_in(region)
        known = {"sent": part.count, "of": part.total} if part else {"sent": 0}
        yield keep_known({"at": pending.position, "region": region, **known})


def describe_message(message: Message) -> dict[str, Any]:
    """A message as JSON; its body is the text that was sent."""
    described: dict[str, Any] = {
        "id": message.id,
        "session": message.session,
        "type": message.type,
        "body": message.body.decode(),
        "number": asdict(message.number) if message.number else None,
        "time": message.time,
        "reply_to": message.reply_to,
        "reply_session": message.reply_session,
        "correlation": message.correlation,
    }
    return keep_known(described)


def format_seconds(seconds: float) -> str:
    """Return a time of the store's clock as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def format_moment(seconds: float | None) -> str | None:
    """Return such a time as text, or None where it is not known."""
    return None if seconds is None else format_seconds(seconds)


def keep_known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something: None is left out."""
    return {name: value for name, value in fields.items() if value is not None}

"""HTTP for operators who know an id: find what names it, and follow a message over sessions.

Both only look. What they may cost is said by who asks, and where that does not suffice, the answer
says so and keeps what was found.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import azure.functions as func

from functions.http.descriptions import format_moment, keep_known
from functions.http.operate import LIMIT, read_limit
from functions.http.requests import read_whole, require_request
from functions.http.responses import respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes
from shared.domain.access import Right
from shared.domain.decision import cursor_of
from shared.domain.errors import LockstepError, UnknownSession
from shared.domain.following import (
    MESSAGES_MAX,
    OUTPUTS_MAX,
    KeptOutput,
    Sender,
    choose_entry,
    derive_output_ids,
    has_sent,
    kept_outputs,
    queues_to,
    sender_of,
    sessions_sent_to,
)
from shared.domain.journal import Entry, MessageIdentity
from shared.domain.message import Message, require_text
from shared.domain.resolution import POSITION_MAX
from shared.domain.saga.record import kinds_of
from shared.domain.spending import count_spending, limit_spending
from shared.engine.build import Services
from shared.engine.operate.standstills import READ_AT_ONCE

# What a search may cost in request units, unless its caller says otherwise, and at most.
UNITS, UNITS_MAX = 200, 10_000
UNITS_SCHEMA = {"type": "integer", "minimum": 1, "maximum": UNITS_MAX}
# Sessions and sagas by prefix, beside the entries: their own lists go on.
NAMES_MAX = 10
# A message is followed over so many hops in each direction, and so many entries in all.
HOPS_MAX, ENTRIES_MAX = 10, 50

# An entry by its session and position.
type Place = tuple[str, int]

routes = HttpRoutes()


@routes.add(
    "find",
    "GET find",
    Right.LOOK,
    "Entries by the id of a message, and sessions and sagas whose names begin so.",
    {200: "What was found, and its request units.", **REFUSED},
    {"id": TEXT, "session": TEXT, "limit": LIMIT, "units": UNITS_SCHEMA},
)
async def find_over_http(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Entries that name a message of this `id`, and names that begin with it.

    `session` asks for the entries of one session only, `limit` for so many entries, and `units` is
    what the search may cost. 503 where none of it could be asked.
    """
    require_request(request, frozenset({"id", "session", "limit", "units"}))
    with count_spending() as spending:
        found = await find_named(services, request.params)
    return respond(found | {"request_units": round(spending.request_units, 2)})


async def find_named(services: Services, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return what has a name, as JSON; raises InvalidMessage, and Unavailable if all is silent.

    The searches go side by side, and one that fails is named in `unknown`. `more` names those that
    have more than is told, and `is_cut` says that the price that was allowed is spent.
    """
    name, session = (parameters.get(one, "") for one in ("id", "session"))
    require_text("id", name)
    if session:
        require_text("session", session)
    limit, units = read_limit(parameters), read_units(parameters)
    spending, journal = limit_spending(units), services.journal
    # One more is asked for of each: whether there are more is known then.
    searches: dict[str, Awaitable[Sequence[Any]]] = {
        "entries": journal.entries_naming([name], session or None, limit=limit + 1)
    }
    if not session:
        searches["sessions"] = journal.listed(name, "", NAMES_MAX + 1)
        if kinds_of(services.handlers):
            searches["sagas"] = journal.sagas(prefix=name, limit=NAMES_MAX + 1)
    answers = await asyncio.gather(*searches.values(), return_exceptions=True)
    found, unknown = dict[str, Sequence[Any]](), dict[str, str]()
    for what, answer in zip(searches, answers, strict=True):
        if isinstance(answer, LockstepError):
            unknown[what] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[what] = answer
    if not found:
        raise next(one for one in answers if isinstance(one, LockstepError))
    most = {"entries": limit, "sessions": NAMES_MAX, "sagas": NAMES_MAX}
    return {
        "id": name,
        "entries": [describe_found(one, name) for one in found.get("entries", ())[:limit]],
        "sessions": [*found.get("sessions", ())[:NAMES_MAX]],
        "sagas": [one.key for one in found.get("sagas", ())[:NAMES_MAX]],
        "more": [what for what, listed in found.items() if len(listed) > most[what]],
        "unknown": unknown,
        "units": units,
        "is_cut": spending.is_spent,
    }


def read_units(parameters: Mapping[str, str]) -> int:
    """Return what a search may cost; raises InvalidMessage."""
    return read_whole(parameters, "units", UNITS_MAX, least=1, default=UNITS)


def describe_found(entry: Entry, name: str) -> dict[str, Any]:
    """An entry that was found, with those of its messages that have the id."""
    return describe_hop(entry, [one for one in entry.identities if one.id == name])


def describe_hop(entry: Entry, identities: Sequence[MessageIdentity]) -> dict[str, Any]:
    """An entry as a hop of a message's way, with some of its messages."""
    return keep_known(
        {
            "session": entry.session,
            "position": entry.position,
            "status": entry.status.value,
            "time": format_moment(entry.written_at),
            "region": entry.attempt.owner.region,
            "messages": [describe_identity(one) for one in identities],
            "reason": entry.reason,
        }
    )


def describe_identity(one: MessageIdentity) -> dict[str, Any]:
    number = {"group": one.number.group, "sequence": one.number.sequence}
    return keep_known({"id": one.id, "type": one.type, **number, "saga": one.saga})


@routes.add(
    "follow",
    "GET follow",
    Right.LOOK,
    "The way of a message over sessions, from an entry in both directions.",
    {200: "Its entries, and its request units.", **REFUSED, 404: "There is no such entry."},
    {
        "session": TEXT,
        "position": {"type": "integer", "minimum": 0, "maximum": POSITION_MAX},
        "units": UNITS_SCHEMA,
    },
)
async def follow_over_http(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """The entries by which the message of an entry came about, and those that follow from it.

    `units` is what that may cost. At most HOPS_MAX hops in each direction and ENTRIES_MAX entries
    are told, and `left` says in sentences what is not.
    """
    require_request(request, frozenset({"session", "position", "units"}))
    with count_spending() as spending:
        found = await find_way(services, request.params)
    return respond(found | {"request_units": round(spending.request_units, 2)})


async def find_way(services: Services, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The way of an entry's message as JSON; raises InvalidMessage, UnknownSession, Unavailable."""
    session = parameters.get("session", "")
    position = read_whole(parameters, "position", POSITION_MAX)
    require_text("session", session)
    units = read_units(parameters)
    limit_spending(units)
    start = await services.journal.entry(session, position)
    if start is None:
        raise UnknownSession(
            f"session {session!r} has no entry at position {position}, or no longer"
        )
    way = Follower(services, units)
    way.entries[session, position] = start
    await asyncio.gather(way.find_causes(start), way.find_effects(start))
    return {
        "session": session,
        "position": position,
        "hops": order_hops(way),
        "left": [*dict.fromkeys(way.left)],
        "units": units,
    }


def order_hops(way: "Follower") -> list[dict[str, Any]]:
    """Return a way as its hops, from the first entry on, each with what follows right behind it.

    A hop has its `depth`, the place `before` of the one it follows from, and the `output` that led
    to it. An entry that was told before is not told again.
    """
    hops, left = list[dict[str, Any]](), dict(way.entries)
    first = next(iter(left))
    # What is told last is kept lowest, so that no way is too long for the stack.
    waiting: list[tuple[int, int | None, dict[str, Any]]] = [
        (0, None, {"session": first[0], "position": first[1]})
    ]
    while waiting:
        depth, before, output = waiting.pop()
        place = output["session"], output.get("position", -1)
        hop = {
            "depth": depth,
            "before": before,
            "session": place[0],
            "position": output.get("position"),
        }
        hop["output"] = output if depth else None
        hops.append(keep_known(hop))
        if (entry := left.pop(place, None)) is None:
            continue
        hops[-1] |= describe_hop(entry, entry.identities[:OUTPUTS_MAX])
        hops[-1] |= keep_known({"cause": way.causes.get(place), "trace": trace_of(entry)})
        here = len(hops) - 1
        waiting += ((depth + 1, here, one) for one in reversed(way.outputs.get(place, ())))
    return hops


def trace_of(entry: Entry) -> str | None:
    """Return the trace that an entry's message is in, as far as the entry keeps it."""
    kept = [entry.message, *(one.message for one in kept_outputs(entry) or ())]
    known = (one.traceparent for one in kept if one is not None)
    return next((one.split("-")[1] for one in known if one), None)


class Follower:
    """One look at the way of a message: what was found of it, and what was not.

    `entries` are in the order of the way, `causes` says of a place what sent its message, `outputs`
    what became of each output, and `left` in sentences what is not told.
    """

    def __init__(self, services: Services, units: int) -> None:
        self.services, self.journal, self.units = services, services.journal, units
        self.queues = services.consumer.dispatcher.delivery.queues
        self.spending = limit_spending(units)
        self.slots = asyncio.Semaphore(READ_AT_ONCE)
        self.entries: dict[Place, Entry] = {}
        self.causes: dict[Place, dict[str, Any]] = {}
        self.outputs: dict[Place, list[dict[str, Any]]] = {}
        self.left: list[str] = []

    def may_go_on(self) -> bool:
        """Say whether what may be spent is not yet, and note it where it is."""
        if self.spending.is_spent:
            self.left.append(f"what follows would cost more than {self.units} request units")
        return not self.spending.is_spent

    def may_add(self) -> bool:
        if len(self.entries) >= ENTRIES_MAX:
            self.left.append(f"no more than {ENTRIES_MAX} entries are told")
        return len(self.entries) < ENTRIES_MAX

    async def find_causes(self, entry: Entry) -> None:
        """Find the entry that sent this one's message, and so on, one after another."""
        for hop in range(HOPS_MAX + 1):
            named = next(((i, s) for i in entry.identities if (s := sender_of(i.number))), None)
            if named is None or not self.may_go_on() or not self.may_add():
                return
            if hop == HOPS_MAX:
                self.left.append(f"what came before {HOPS_MAX} hops is not told")
                return
            identity, sender = named
            try:
                cause = await self.find_cause(entry.session, identity, sender)
            except LockstepError as error:
                self.left.append(f"who sent {identity.id} could not be asked: {error}")
                return
            # A search that was cut has not found that something is gone.
            if cause is None and not self.may_go_on():
                return
            known = {"session": sender.session, "position": cause.position if cause else None}
            self.causes[entry.session, entry.position] = keep_known({"id": identity.id, **known})
            if cause is None:
                return
            if (place := (cause.session, cause.position)) in self.entries:
                return
            self.entries = {place: cause, **self.entries}
            outputs = [one for one in kept_outputs(cause) or () if one.message.id == identity.id]
            of_it = describe_output(identity.id, entry.session, *outputs[:1])
            self.outputs[place] = [of_it | {"position": entry.position}]
            entry = cause

    async def find_cause(
        self, session: str, identity: MessageIdentity, sender: Sender
    ) -> Entry | None:
        """Return the entry that sent an output to a session, or None where it is gone.

        By halves, because the numbers of a session's outputs only grow.
        """
        head = await self.journal.head(sender.session, newest=False)
        queues = queues_to(head, session, is_here=sender.is_here) if head else []
        for queue in queues:
            found, below = head, -1
            while found and found.position - below > 1 and not self.spending.is_spent:
                middle = (below + found.position) // 2
                entry = await self.journal.entry(sender.session, middle)
                if entry and has_sent(entry, queue, session, identity.number.sequence):
                    found = entry
                else:
                    below = middle
            kept = (kept_outputs(found) if found else None) or ()
            # Where the entry before it is gone, it may be only the oldest that is left.
            if found and (
                any(one.message.id == identity.id for one in kept)
                or (not kept and identity.id in derive_output_ids(found))
            ):
                return found
        return None

    async def find_effects(self, start: Entry) -> None:
        """Find the entries of this one's outputs, then those of theirs, a hop at a time."""
        hop = [start]
        for _ in range(HOPS_MAX):
            if not hop or not self.may_go_on() or not self.may_add():
                return
            found = await asyncio.gather(*map(self.find_next, hop))
            hop = []
            for entry in (one for several in found for one in several):
                place = entry.session, entry.position
                # A message may come round to a session: an entry is looked at once.
                if place not in self.entries and self.may_add():
                    self.entries[place] = entry
                    hop += [] if entry.outbox.is_empty else [entry]
        if hop:
            self.left.append(f"what came after {HOPS_MAX} hops is not told")

    async def find_next(self, entry: Entry) -> Sequence[Entry]:
        """Return the entries of an entry's outputs, and note what became of each output."""
        place, outputs = (entry.session, entry.position), kept_outputs(entry)
        if outputs is None:
            return await self.find_unkept(entry)
        if len(outputs) > OUTPUTS_MAX:
            many = len(outputs) - OUTPUTS_MAX
            self.left.append(
                f"{many} more outputs of position {place[1]} of {place[0]} are not told"
            )
        by_session: dict[str, list[KeptOutput]] = {}
        for one in outputs[:OUTPUTS_MAX]:
            by_session.setdefault(one.message.session, []).append(one)
        several = await asyncio.gather(
            *(self.find_outputs(entry, session, sent) for session, sent in by_session.items())
        )
        self.outputs[place] = [output for outputs, _ in several for output in outputs]
        return [one for _, entries in several for one in entries]

    async def find_outputs(
        self, entry: Entry, session: str, sent: Sequence[KeptOutput]
    ) -> tuple[list[dict[str, Any]], list[Entry]]:
        """Return what became of an entry's outputs for a session, and the entries that say so."""
        described, entries = list[dict[str, Any]](), list[Entry]()
        try:
            async with self.slots:
                ids = [one.message.id for one in sent]
                found = await self.journal.entries_naming(ids, session, limit=4 * len(ids))
                head: Entry | None = None
                for one in sent:
                    output = describe_output(one.message.id, session, one)
                    output["queue"] = self.queues.resolve(one.queue)
                    described.append(output)
                    if (reached := choose_entry(found, one.message.id)) is not None:
                        output["position"] = reached.position
                        entries.append(reached)
                        continue
                    head = head or await self.journal.head(session, newest=False)
                    said = await self.explain_absence(entry, one, head)
                    # A search that was cut has not found that there is no entry.
                    if self.may_go_on():
                        output["said"] = said
        except LockstepError as error:
            self.left.append(f"session {session} could not be asked: {error}")
        return described, entries

    async def find_unkept(self, entry: Entry) -> Sequence[Entry]:
        """Return the entries of outputs that an entry does not keep in itself, by their ids.

        No handler is run for it.
        """
        place, before = f"position {entry.position} of {entry.session}", None
        try:
            if entry.position:
                before = await self.journal.entry(entry.session, entry.position - 1)
            if before is None and entry.position:
                self.left.append(f"where {place} sent its outputs is not known any more")
                return []
            sessions = sessions_sent_to(before.produced if before else {}, entry)
            ids = derive_output_ids(entry)
            searches = (
                self.journal.entries_naming(ids, one, limit=len(ids))
                for one in sessions[:OUTPUTS_MAX]
            )
            several = await asyncio.gather(*searches)
        except LockstepError as error:
            self.left.append(f"the outputs of {place} could not be asked for: {error}")
            return []
        found = [one for entries in several for one in entries]
        self.outputs[entry.session, entry.position] = [
            describe_output(identity.id, one.session)
            | {"type": identity.type, "position": one.position}
            for one in found
            for identity in one.identities
            if identity.id in ids
        ]
        reached = {one.session for one in found}
        self.left += [
            f"{place} sent outputs to {one}, of which no entry is found"
            for one in sessions[:OUTPUTS_MAX]
            if one not in reached and not self.spending.is_spent
        ]
        if len(sessions) > OUTPUTS_MAX or len(entry.identities) > MESSAGES_MAX:
            self.left.append(f"not all outputs of {place} are told")
        return found

    async def explain_absence(self, entry: Entry, sent: KeptOutput, head: Entry | None) -> str:
        """Return why no entry names an output, as far as it can be known."""
        message = sent.message
        if message.id in entry.outbox.refused:
            return f"refused: {entry.outbox.refused[message.id]}"
        queue = self.queues.resolve(sent.queue)
        if queue != self.queues.here:
            return f"sent to {queue}, and this app has no entry of it"
        if await self.was_processed(message, head):
            return "processed, and its entry was removed since"
        if entry.outbox.regions:
            return f"pending for {', '.join(entry.outbox.regions)}"
        return "not processed yet" + (
            f", due at {message.time}" if message.reminder is not None else ""
        )

    async def was_processed(self, message: Message, head: Entry | None) -> bool:
        if message.number is None:
            return await self.journal.marker(message.session, message.id) is not None
        if head is None:
            return False
        group = message.number.group
        known = await self.services.worker.with_cursors(head, [group])
        return cursor_of(known, group).next > message.number.sequence


def describe_output(output_id: str, session: str, *sent: KeptOutput) -> dict[str, Any]:
    """An output as JSON: its id and session, and of one that its entry keeps type and queue."""
    kept = {"type": sent[0].message.type, "queue": sent[0].queue} if sent else {}
    return {"id": output_id, "session": session, **kept}

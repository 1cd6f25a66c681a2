"""HTTP for operators who know an id: find what names it, and follow a message over sessions.

Both only look. What they may cost is said by who asks, and where that does not suffice, the answer
says so and keeps what was found.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import azure.functions as func

from functions.http.descriptions import format_moment, keep_known
from functions.http.follow import Follower
from functions.http.operate import LIMIT, read_limit
from functions.http.requests import read_whole, require_request
from functions.http.responses import respond
from functions.http.routes import REFUSED, TEXT, HttpRoutes
from shared.domain.access import Right
from shared.domain.errors import LockstepError
from shared.domain.following import OUTPUTS_MAX, FollowedOutput, Hop, SentBy, trace_of
from shared.domain.journal import Entry, MessageIdentity
from shared.domain.message import require_text
from shared.domain.resolution import POSITION_MAX
from shared.domain.saga.record import kinds_of
from shared.domain.spending import count_spending, limit_spending
from shared.engine.build import Services

# What a search may cost in request units, unless its caller says otherwise, and at most.
UNITS, UNITS_MAX = 200, 10_000
UNITS_SCHEMA = {"type": "integer", "minimum": 1, "maximum": UNITS_MAX}
# Sessions and sagas by prefix, beside the entries: their own lists go on.
NAMES_MAX = 10

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
    queues = services.consumer.dispatcher.delivery.queues
    follower = Follower(services.worker, queues, units)
    hops = await follower.follow(session, position)
    return {
        "session": session,
        "position": position,
        "hops": [describe_way_hop(one) for one in hops],
        "left": [*dict.fromkeys(follower.left)],
        "units": units,
    }


def describe_way_hop(hop: Hop) -> dict[str, Any]:
    """A hop of a way as JSON: with a status where it is an entry."""
    described: dict[str, Any] = {"depth": hop.depth, "before": hop.before, "session": hop.session}
    described |= {"position": hop.position, "output": describe_known(hop.output)}
    if hop.entry is not None:
        described |= describe_hop(hop.entry, hop.entry.identities[:OUTPUTS_MAX])
        described |= {"cause": describe_known(hop.cause), "trace": trace_of(hop.entry)}
    return keep_known(described)


def describe_known(one: SentBy | FollowedOutput | None) -> dict[str, Any] | None:
    return None if one is None else keep_known(asdict(one))

"""How stored documents are found: the queries in the SQL of Cosmos DB, and what they look for."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shared.ports import SessionNeed
from shared.storage.documents import blocked_key, written_at

# Entry ids are digits and ':' follows '9', so this range holds entries and nothing else.
HEAD_QUERY = "SELECT TOP 1 * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id DESC"
OLDEST_QUERY = "SELECT * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id"
PROCESSED_QUERY = (
    "SELECT c.id, c.covers, c.claimed FROM c WHERE c.id >= @from AND c.id < ':' ORDER BY c.id"
)
BLOCKED_QUERY = "SELECT * FROM c WHERE ARRAY_LENGTH(c.blocked) > 0 ORDER BY c.id"
PARKED_QUERY = "SELECT * FROM c WHERE c.id >= @from AND c.id <= @to ORDER BY c.id"
# What a sign says, and no bodies or states, which may be large.
SIGN_FIELDS = (
    "c.id, c.session, c.kind, c._ts, c._etag, c.faulted, c.halt, c.reason, c.alert, c.owing,"
    ' c.waiting, {"refused": c.outbox.refused, "blocked": c.outbox.blocked,'
    ' "decided": c.outbox.decided} AS outbox'
)
MILESTONE_QUERY = "SELECT c.id, c._ts FROM c WHERE c.milestone = true ORDER BY c.id DESC"
# Which region wrote what, and no state. Only the time is indexed, so what is no entry is read for
# nothing; at the newest end of a journal that is little.
RECENT_QUERY = (
    "SELECT c._ts, c.owner, ARRAY_LENGTH(c.covers) AS messages FROM c"
    " WHERE c._ts > @since AND c.kind = 'entry' ORDER BY c._ts DESC"
)
WAITING_QUERY = (
    "SELECT c._ts FROM c WHERE ARRAY_CONTAINS(c.owing, @region) AND c._ts <= @late ORDER BY c._ts"
)
# The oldest outbox that is blocked in @region and at something beside what is @known.
BLOCKED_BESIDE_QUERY = (
    "SELECT TOP 1 c.blocked FROM c WHERE ARRAY_CONTAINS(c.blocked, @region)"
    " AND ARRAY_LENGTH(SETINTERSECT(c.blocked, @known)) < ARRAY_LENGTH(c.blocked) ORDER BY c._ts"
)
# What a sweep in @region has to do, at any age. Without TOP or ORDER BY it needs no query plan.
WORK_QUERY = (
    "SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.owing, @region)"
    " OR ARRAY_CONTAINS(c.blocked, @region) OR c.claimed = true OR c.waiting = true"
)
LISTED_QUERY = (
    "SELECT c.listed FROM c WHERE c.id = 'genesis' AND c.listed > @after"
    " AND STARTSWITH(c.listed, @prefix) ORDER BY c.listed"
)
# The field that is there only while a document's session has the need.
FIELDS = {
    SessionNeed.DELIVERY: "owing",
    SessionNeed.UNBLOCKING: "blocked",
    SessionNeed.TAKE_OVER: "claimed",
    SessionNeed.DRAINING: "waiting",
    SessionNeed.RESOLUTION: "faulted",
    SessionNeed.COMPACTION: "milestone",
}


# The needs that are asked for a place: a region, or one queue of it.
PLACED = (SessionNeed.DELIVERY, SessionNeed.UNBLOCKING)
# The needs that a sweep looks for.
SWEPT = (*PLACED, SessionNeed.TAKE_OVER, SessionNeed.DRAINING)


def place_of(need: SessionNeed, region: str, queue: str) -> str:
    """Where a session is asked to have a need."""
    return blocked_key(region, queue) if need is SessionNeed.UNBLOCKING else region


def shows_need(document: Mapping[str, Any], need: SessionNeed, place: str = "") -> bool:
    """Whether a document shows that its session has the need, at a place where it has one."""
    value = document.get(FIELDS[need])
    return place in (value or ()) if need in PLACED else bool(value)


def is_pending_partly(document: Mapping[str, Any], regions: int) -> bool:
    """Whether fewer than so many regions miss a document's outbox."""
    return len(document.get(FIELDS[SessionNeed.DELIVERY]) or ()) < regions


def shows_any_need(document: Mapping[str, Any]) -> bool:
    """Whether a document shows that its session has any need."""
    return any(document.get(field) for field in FIELDS.values())


def sessions_query(need: SessionNeed, *, excludes: bool, partly: bool = False) -> str:
    """The sessions with a need, the oldest first; `excludes` leaves out those of @excluded.

    `partly` finds those only whose outbox fewer than @regions miss.
    """
    field = FIELDS[need]
    condition = f"c.{field} = true"
    if need in PLACED:
        condition = f"ARRAY_CONTAINS(c.{field}, @place)"
    if partly:
        condition += f" AND ARRAY_LENGTH(c.{field}) < @regions"
    if excludes:
        condition += " AND NOT ARRAY_CONTAINS(@excluded, c.session)"
    return f"SELECT c.session, c._ts FROM c WHERE {condition} ORDER BY c._ts"  # noqa: S608 - from our own table


def shows_work(document: Mapping[str, Any], region: str) -> bool:
    """Whether `WORK_QUERY` finds a document."""
    # Where queues are blocked, the field names their region, too.
    return any(shows_need(document, need, region) for need in SWEPT)


def signs_query(needs: Collection[SessionNeed], regions: int) -> str:
    """The signs of these needs, the newest first: at @from or before, and those of DELIVERY and
    DRAINING at @late or before; outboxes of @r0, @r1, ...
    """
    late = "c._ts <= @late"
    conditions = {
        SessionNeed.RESOLUTION: "c.faulted = true",
        SessionNeed.UNBLOCKING: f"({contains_any('blocked', regions)})",
        SessionNeed.DRAINING: f"(c.waiting = true AND {late})",
        SessionNeed.DELIVERY: f"(({contains_any('owing', regions)}) AND {late})",
    }
    wanted = " OR ".join(conditions[need] for need in conditions if need in needs)
    return f"SELECT {SIGN_FIELDS} FROM c WHERE ({wanted}) AND c._ts <= @from ORDER BY c._ts DESC"  # noqa: S608 - from our own table


def contains_any(field: str, regions: int) -> str:
    """The condition that a list names @r0, @r1, ..."""
    return " OR ".join(f"ARRAY_CONTAINS(c.{field}, @r{index})" for index in range(regions))


def shows_sign(
    document: Mapping[str, Any], needs: Collection[SessionNeed], regions: Sequence[str], late: float
) -> bool:
    """Whether `signs_query` finds a document; `late` is the time that it names so."""
    at_once = (SessionNeed.RESOLUTION, SessionNeed.UNBLOCKING)
    return any(
        shows_need(document, need, one) and (need in at_once or written_at(document) <= late)
        for need in needs
        for one in regions
    )


def pending_query(regions: int) -> str:
    """The outboxes of a session that wait for @r0, @r1, ...: the oldest entries first."""
    return f"SELECT * FROM c WHERE {contains_any('owing', regions)} ORDER BY c.id"  # noqa: S608 - numbers only

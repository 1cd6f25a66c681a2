"""The queries of the journal, each in the SQL of Cosmos DB and as a function beside it.

`FIELDS` are the fields that are there only while a document's session has a need, and by which it
is found. A query of these says so, because no other document has to be looked at.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial

from shared.ports import Document, Query, SessionNeed
from shared.storage.documents import is_entry, parked_ends, written_at
from shared.storage.entries import ENTRY_IDS, GENESIS_ID, position_id, summarise_entry

# Of a session's marks so many are looked at, and of signs: all of those of a page's last second
# must be among them.
MILESTONES_MAX = 1_000
SIGNS_MAX = 10_000
# Documents of an ended session that are looked at to remove them.
REMOVED_MAX = 10_000
# A partition that holds nothing.
NOBODY = "$nobody"

# What a sign says, and no bodies or states, which may be large.
SIGN_FIELDS = (
    "c.id, c.session, c.kind, c._ts, c._etag, c.faulted, c.halt, c.reason, c.raised_at, c.alert,"
    " c.unknown,"
    ' c.pending, c.waiting, {"refused": c.outbox.refused, "blocked": c.outbox.blocked,'
    ' "decided": c.outbox.decided} AS outbox'
)
# What an entry says of its outcome, and no state or outputs.
OUTCOME_FIELDS = (
    "c.id, c.session, c._ts, c.status, c.identities, c.attempt, c.owner, c.cursors, c.reason,"
    " c.raised_at, c.resolution, c.halt"
)
# The field that is there only while a document's session has the need.
FIELDS = {
    SessionNeed.DELIVERY: "pending",
    SessionNeed.UNBLOCKING: "blocked",
    SessionNeed.TAKE_OVER: "claimed",
    SessionNeed.DRAINING: "waiting",
    SessionNeed.RESOLUTION: "faulted",
    SessionNeed.COMPACTION: "milestone",
}
# The field that is there only while nobody has ended the report of a rejected delivery.
OPEN_REPORT = "rejected"
# The needs that are asked for a place: a region, or one queue of it.
PLACED = (SessionNeed.DELIVERY, SessionNeed.UNBLOCKING)
# The needs that a sweep looks for.
SWEPT = (*PLACED, SessionNeed.TAKE_OVER, SessionNeed.DRAINING)

# Queries for documents that show a need, in the order of their ids or of their times.
flagged_by_id = partial(Query, order="id", is_flagged=True)
flagged_by_time = partial(Query, order="_ts", is_flagged=True)


def shows_need(document: Document, need: SessionNeed, place: str = "") -> bool:
    """Say whether a document shows that its session has the need, at a place where it has one."""
    value = document.get(FIELDS[need])
    return place in (value or ()) if need in PLACED else bool(value)


def shows_any_need(document: Document) -> bool:
    return any(document.get(field) for field in (*FIELDS.values(), OPEN_REPORT))


def head_query(session: str, *, may_be_old: bool = False) -> Query:
    """Return the query for the newest entry of a session."""
    return Query(
        "SELECT TOP 1 * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id DESC",
        1,
        session=session,
        order="id",
        is_descending=True,
        ids=ENTRY_IDS,
        may_be_old=may_be_old,
    )


def oldest_query(session: str, limit: int, position: int = 0) -> Query:
    """Return the query for the oldest entries of a session from a position on."""
    start = position_id(position)
    return Query(
        "SELECT * FROM c WHERE c.id >= @from AND c.id < ':' ORDER BY c.id",
        limit,
        parameters={"@from": start},
        session=session,
        order="id",
        ids=(start, ENTRY_IDS[1]),
    )


def partition_query(session: str) -> Query:
    """Return the query for what there is of a session, of any kind."""
    sql = 'SELECT c.id, c.kind, c._etag, c["group"], c.next, c.ended FROM c'
    return Query(sql, REMOVED_MAX, session=session)


def processed_query(session: str, position: int, limit: int) -> Query:
    """Return the query for what the entries of a session from a position on processed."""
    start = position_id(position)
    return Query(
        "SELECT c.id, c.identities, c.claimed, c.quiet FROM c WHERE c.id >= @from AND c.id < ':'"
        " ORDER BY c.id",
        limit,
        parameters={"@from": start},
        session=session,
        order="id",
        ids=(start, ENTRY_IDS[1]),
        may_be_old=True,
    )


def parked_query(session: str, lowest: str, highest: str, limit: int) -> Query:
    """Return the query for the messages of a session that are parked under a range of ids."""
    return Query(
        "SELECT * FROM c WHERE c.id >= @from AND c.id <= @to ORDER BY c.id",
        limit,
        parameters={"@from": lowest, "@to": highest},
        session=session,
        order="id",
        ids=(lowest, highest),
    )


def first_parked_query(session: str, group: str) -> Query:
    """Return the query for the message of a producer group that is parked under the lowest id."""
    return parked_query(session, *parked_ends(group), limit=1)


def pending_query(session: str, regions: Sequence[str], limit: int) -> Query:
    """Return the query for a session's outboxes that wait for regions, the oldest entries first."""
    return flagged_by_id(
        f"SELECT * FROM c WHERE {contains_any('pending', len(regions))} ORDER BY c.id",  # noqa: S608 - numbers only
        limit,
        lambda document: shows_need_at(document, SessionNeed.DELIVERY, regions),
        named(regions),
        session,
    )


def blocked_query(session: str, limit: int) -> Query:
    """Return the query for a session's outboxes with blocked queues, the oldest entries first."""
    return flagged_by_id(
        "SELECT * FROM c WHERE ARRAY_LENGTH(c.blocked) > 0 ORDER BY c.id",
        limit,
        lambda document: bool(document.get("blocked")),
        session=session,
    )


def blocked_beside_query(region: str, known: Collection[str]) -> Query:
    """Return the query for the oldest outbox that a region blocks at a queue that is not known."""
    return flagged_by_time(
        "SELECT TOP 1 c.blocked FROM c WHERE ARRAY_CONTAINS(c.blocked, @region) AND"
        " ARRAY_LENGTH(SETINTERSECT(c.blocked, @known)) < ARRAY_LENGTH(c.blocked) ORDER BY c._ts",
        1,
        lambda document: (
            region in (blocked := document.get("blocked", ())) and not {*blocked} <= {*known}
        ),
        {"@region": region, "@known": list(known)},
    )


def work_query(region: str) -> Query:
    """Return the query for anything that a sweep in a region has to do, at any age."""
    return Query(
        # Without TOP or ORDER BY it needs no query plan.
        "SELECT c.id FROM c WHERE ARRAY_CONTAINS(c.pending, @region)"
        " OR ARRAY_CONTAINS(c.blocked, @region) OR c.claimed = true OR c.waiting = true",
        1,
        # Where queues are blocked, the field names their region, too.
        lambda document: any(shows_need(document, need, region) for need in SWEPT),
        {"@region": region},
        is_flagged=True,
    )


def sessions_query(
    need: SessionNeed,
    place: str,
    limit: int,
    *,
    excluded: Collection[str] = (),
    of_regions: int = 0,
    is_enough: Callable[[list[Document], Document], bool] | None = None,
) -> Query:
    """Return the query for documents that show a need at a place, the oldest first.

    Those of the `excluded` sessions are left out, and with `of_regions` all whose outbox no fewer
    regions miss.
    """
    field = FIELDS[need]
    condition, parameters = f"c.{field} = true", dict[str, object]()
    if need in PLACED:
        condition = f"ARRAY_CONTAINS(c.{field}, @place)"
        parameters["@place"] = place
    if of_regions:
        condition += f" AND ARRAY_LENGTH(c.{field}) < @regions"
        parameters["@regions"] = of_regions
    if excluded:
        condition += " AND NOT ARRAY_CONTAINS(@excluded, c.session)"
        parameters["@excluded"] = list(excluded)
    return flagged_by_time(
        f"SELECT c.session, c._ts FROM c WHERE {condition} ORDER BY c._ts",  # noqa: S608 - from our own table
        limit,
        lambda document: (
            shows_need(document, need, place)
            and (not of_regions or len(document[field]) < of_regions)
            and document["session"] not in excluded
        ),
        parameters,
        is_enough=is_enough,
    )


def signs_query(
    needs: Collection[SessionNeed],
    regions: Sequence[str],
    session: str | None,
    late: float,
    newest: float,
    is_enough: Callable[[list[Document], Document], bool],
    counted: tuple[float, float] | None = None,
) -> Query:
    """Return the query for the signs of these needs, the newest first, from a time on backwards.

    Those of DELIVERY and DRAINING count if they were written at `late` or before, and outboxes if
    they wait for or are blocked in one of the regions. Of what was `counted` before, those two up
    to the second time and others up to the first, nothing is found; then it may be old.
    """
    known, known_late = counted or (-1.0, -1.0)
    is_new = " AND c._ts > @known" if counted else ""
    is_late = "c._ts <= @late" + (" AND c._ts > @knownLate" if counted else "")
    conditions = {
        SessionNeed.RESOLUTION: f"(c.faulted = true{is_new})",
        SessionNeed.UNBLOCKING: f"(({contains_any('blocked', len(regions))}){is_new})",
        SessionNeed.DRAINING: f"(c.waiting = true AND {is_late})",
        SessionNeed.DELIVERY: f"(({contains_any('pending', len(regions))}) AND {is_late})",
    }
    wanted = " OR ".join(conditions[need] for need in conditions if need in needs)
    # A store with no index for each part of the condition looks at nothing that is older.
    is_within = "c._ts <= @from" + (" AND c._ts > @oldest" if counted else "")
    sql = f"SELECT {SIGN_FIELDS} FROM c WHERE ({wanted}) AND {is_within} ORDER BY c._ts DESC"  # noqa: S608 - from our own table
    parameters = named(regions) | {"@late": late, "@from": newest}
    parameters |= {"@known": known, "@knownLate": known_late, "@oldest": min(known, known_late)}

    def matches(document: Document) -> bool:
        written = written_at(document)
        return written <= newest and any(
            shows_need_at(document, need, regions)
            and (
                written > known
                if need in (SessionNeed.RESOLUTION, SessionNeed.UNBLOCKING)
                else known_late < written <= late
            )
            for need in needs
        )

    return flagged_by_time(
        sql,
        SIGNS_MAX,
        matches,
        {name: value for name, value in parameters.items() if re.search(rf"{name}\b", sql)},
        session,
        is_descending=True,
        is_enough=is_enough,
        may_be_old=counted is not None,
    )


def open_reports_query(
    since: float,
    session: str | None,
    limit: int,
    is_enough: Callable[[list[Document], Document], bool] | None = None,
) -> Query:
    """Return the query for reports that nobody has ended, from a time on, the oldest first.

    Without `is_enough` only their times are found, which may be old.
    """
    is_count = is_enough is None
    return flagged_by_time(
        f"SELECT {'c._ts' if is_count else '*'} FROM c WHERE c.{OPEN_REPORT} = true"  # noqa: S608 - our own names
        " AND c._ts >= @since ORDER BY c._ts",
        limit,
        lambda document: bool(document.get(OPEN_REPORT)) and written_at(document) >= since,
        {"@since": since},
        session,
        is_enough=is_enough,
        may_be_old=is_count,
    )


def milestone_query(session: str) -> Query:
    """Return the query for the marked entries of a session, the newest first."""
    return flagged_by_id(
        "SELECT c.id, c._ts FROM c WHERE c.milestone = true ORDER BY c.id DESC",
        MILESTONES_MAX,
        partial(shows_need, need=SessionNeed.COMPACTION),
        session=session,
        is_descending=True,
    )


def listed_query(prefix: str, after: str, limit: int) -> Query:
    """Return the query for sessions by name: those of a prefix that come after a name."""
    return Query(
        "SELECT c.listed FROM c WHERE c.id = 'genesis' AND c.listed > @after"
        " AND STARTSWITH(c.listed, @prefix) ORDER BY c.listed",
        limit,
        lambda document: (name := document.get("listed", "")) > after and name.startswith(prefix),
        {"@after": after, "@prefix": prefix},
        order="listed",
        ids=(GENESIS_ID, GENESIS_ID),
        may_be_old=True,
    )


def recent_query(since: float, limit: int) -> Query:
    """Return the query for which region wrote what after a time, the newest first; no states."""
    return Query(
        # Only the time is indexed, so what is no entry is read for nothing: little, at this end.
        "SELECT c._ts, c.owner, ARRAY_LENGTH(c.identities) AS messages FROM c"
        " WHERE c._ts > @since AND c.kind = 'entry' ORDER BY c._ts DESC",
        limit,
        lambda document: is_entry(document) and written_at(document) > since,
        {"@since": since},
        order="_ts",
        is_descending=True,
        ids=ENTRY_IDS,
        select=summarise_entry,
        may_be_old=True,
    )


def since_query(since: float, limit: int) -> Query:
    """Return the query for entries that were written at a time or later, the oldest first."""
    return Query(
        "SELECT * FROM c WHERE c._ts >= @since AND c.kind = 'entry' ORDER BY c._ts",
        limit,
        lambda document: is_entry(document) and written_at(document) >= since,
        {"@since": since},
        order="_ts",
        ids=ENTRY_IDS,
        may_be_old=True,
    )


def changed_query(need: SessionNeed | None, newest: float, limit: int) -> Query:
    """Return the query for sessions by what was written of them, from a time on backwards.

    With a need only what shows it is looked at, and otherwise every entry.
    """
    shows = "c.kind = 'entry'" if need is None else f"c.{FIELDS[need]} = true"

    def matches(document: Document) -> bool:
        is_shown = is_entry(document) if need is None else shows_need(document, need)
        return is_shown and written_at(document) <= newest

    return Query(
        f"SELECT c.session, c._ts FROM c WHERE {shows} AND c._ts <= @from ORDER BY c._ts DESC",  # noqa: S608 - from our own table
        limit,
        matches,
        {"@from": newest},
        order="_ts",
        is_descending=True,
        is_flagged=need is not None,
        may_be_old=True,
    )


def naming_query(ids: Collection[str], session: str | None, limit: int) -> Query:
    """Return the query for entries that name messages of these ids, in no order.

    Of all sessions what an entry says of its outcome is found; of one session all that it says.
    """
    named = {f"@m{index}": {"id": one} for index, one in enumerate(ids)}
    # Each message's id is indexed. Sorted by time, or with any other condition, more is looked at.
    condition = " OR ".join(f"ARRAY_CONTAINS(c.identities, {name}, true)" for name in named)
    return Query(
        f"SELECT {OUTCOME_FIELDS if session is None else '*'} FROM c WHERE {condition}",  # noqa: S608 - from our own names
        limit,
        lambda document: any(one["id"] in ids for one in document.get("identities", ())),
        named,
        session,
        ids=ENTRY_IDS,
        may_be_old=True,
    )


def waiting_query(region: str, late: float, limit: int) -> Query:
    """Return the query for outboxes that wait for a region since a time, the oldest first."""
    return flagged_by_time(
        "SELECT c._ts FROM c WHERE ARRAY_CONTAINS(c.pending, @region) AND c._ts <= @late"
        " ORDER BY c._ts",
        limit,
        lambda document: (
            shows_need(document, SessionNeed.DELIVERY, region) and written_at(document) <= late
        ),
        {"@region": region, "@late": late},
        may_be_old=True,
    )


def named(regions: Sequence[str]) -> dict[str, object]:
    """Return regions under the names @r0, @r1, ..."""
    return {f"@r{index}": region for index, region in enumerate(regions)}


def contains_any(field: str, regions: int) -> str:
    """Return the condition that a list names @r0, @r1, ..."""
    return " OR ".join(f"ARRAY_CONTAINS(c.{field}, @r{index})" for index in range(regions))


def shows_need_at(document: Document, need: SessionNeed, regions: Sequence[str]) -> bool:
    """Say whether a document shows a need, in one of some regions where it has a place."""
    places = regions if need in PLACED else ("",)
    return any(shows_need(document, need, place) for place in places)

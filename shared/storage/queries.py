"""How stored documents are found: the queries in the SQL of Cosmos DB, and what they look for."""

from collections.abc import Mapping
from typing import Any

from shared.ports import SessionNeed

# Entry ids are digits and ':' follows '9', so this range holds entries and nothing else.
HEAD_QUERY = "SELECT TOP 1 * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id DESC"
OLDEST_QUERY = "SELECT * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id"
PROCESSED_QUERY = (
    "SELECT c.id, c.covers, c.claimed FROM c WHERE c.id >= @from AND c.id < ':' ORDER BY c.id"
)
FAULTS_QUERY = "SELECT * FROM c WHERE c.faulted = true ORDER BY c.id"
MILESTONE_QUERY = "SELECT c.id, c._ts FROM c WHERE c.milestone = true ORDER BY c.id DESC"
# The field that is there only while a document's session has the need.
FIELDS = {
    SessionNeed.DELIVERY: "owing",
    SessionNeed.TAKE_OVER: "claimed",
    SessionNeed.DRAINING: "waiting",
    SessionNeed.RESOLUTION: "faulted",
    SessionNeed.COMPACTION: "milestone",
}


def shows_need(document: Mapping[str, Any], need: SessionNeed, region: str = "") -> bool:
    """Whether a document shows that its session has the need; DELIVERY is asked for one region."""
    value = document.get(FIELDS[need])
    return region in (value or ()) if need is SessionNeed.DELIVERY else bool(value)


def shows_any_need(document: Mapping[str, Any]) -> bool:
    """Whether a document shows that its session has any need."""
    return any(document.get(field) for field in FIELDS.values())


def sessions_query(need: SessionNeed, *, excludes: bool) -> str:
    """The sessions with a need, the oldest first; `excludes` leaves out those of @excluded."""
    field = FIELDS[need]
    condition = f"c.{field} = true"
    if need is SessionNeed.DELIVERY:
        condition = f"ARRAY_CONTAINS(c.{field}, @region)"
    if excludes:
        condition += " AND NOT ARRAY_CONTAINS(@excluded, c.session)"
    return f"SELECT c.session, c._ts FROM c WHERE {condition} ORDER BY c._ts"  # noqa: S608 - from our own table


def pending_query(regions: int) -> str:
    """The outboxes of a session that wait for @r0, @r1, ...: the oldest entries first."""
    condition = " OR ".join(f"ARRAY_CONTAINS(c.owing, @r{index})" for index in range(regions))
    return f"SELECT * FROM c WHERE {condition} ORDER BY c.id"  # noqa: S608 - numbers only

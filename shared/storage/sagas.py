"""The document by which a saga is listed: one beside its journal, written with each of its entries.

Entries are never changed, so none of them can say that it is the newest one and that its saga is
under way. This document can: it is found by its state and key without a look at any journal. It
decides nothing. Whoever acts on it reads the journal first.
"""

from collections.abc import Callable, Mapping
from typing import Any

from shared.domain.journal import Entry
from shared.domain.saga.plan import SagaState, key_of
from shared.domain.saga.record import ListedSaga, SagaRecord, foresee
from shared.ports import Document, Operation, Query, UpsertDocument
from shared.storage.documents import written_at

SAGA_ID = "saga"
# The indexed fields: its key, its state before its key, and of one that is running when it is due.
BY_KEY, BY_STATE, BY_DUE = "saga", "saga_in", "saga_due"
# What is indexed of each document: when the store wrote it last.
BY_CHANGE = "_ts"
FIELDS = "c.saga, c.saga_in, c.saga_due, c.waits, c.type, c.started, c.region, c._ts"


def list_saga(entry: Entry) -> list[Operation]:
    """Return what lists a saga as an entry leaves it; nothing for an entry that changes none."""
    key, record = key_of(entry.session), entry.state or {}
    state = record.get("state")
    if key is None or not isinstance(state, str) or state not in list(SagaState):
        return []
    named = {"type": record.get("kind"), "started": record.get("at")}
    try:
        waits, due = foresee(SagaRecord.model_validate(record))
    except ValueError:
        # Somebody wrote it by hand.
        waits, due = None, None
    document: Document = {
        "id": SAGA_ID,
        "session": entry.session,
        "kind": "saga",
        BY_KEY: key,
        BY_STATE: lead_of(SagaState(state)) + key,
        "region": entry.attempt.owner.region,
        **{name: value for name, value in named.items() if isinstance(value, str)},
        **{name: one for name, one in (("waits", waits), (BY_DUE, due)) if one is not None},
    }
    return [UpsertDocument(document)]


def lead_of(state: SagaState | None) -> str:
    """Return what stands before a key where sagas of one state are in the order of their keys."""
    return f"{state}/" if state else ""


def sagas_query(state: SagaState | None, prefix: str, after: str, limit: int) -> Query:
    """Return the query for sagas by key, of one state or all: those of a prefix, after a key."""
    field, lead = (BY_STATE if state else BY_KEY), lead_of(state)
    return Query(
        f"SELECT {FIELDS} FROM c WHERE c.{field} >"  # noqa: S608 - from our own names
        f" @after AND STARTSWITH(c.{field}, @prefix) ORDER BY c.{field}",
        limit,
        lambda document: (
            (name := document.get(field, "")) > lead + after and name.startswith(lead + prefix)
        ),
        {"@after": lead + after, "@prefix": lead + prefix},
        order=field,
        ids=(SAGA_ID, SAGA_ID),
        may_be_old=True,
    )


def timed_sagas_query(
    field: str,
    until: float,
    limit: int,
    is_enough: Callable[[list[Document], Document], bool] | None = None,
) -> Query:
    """Return the query for sagas by BY_CHANGE or BY_DUE, up to a time.

    With `is_enough` the newest come first, and otherwise the oldest.
    """
    is_descending = is_enough is not None
    # Every document has a time, so sagas are told by their key.
    shows = f"c.{BY_KEY} > '' AND " if field == BY_CHANGE else ""
    return Query(
        f"SELECT {FIELDS} FROM c WHERE {shows}c.{field} <= @until"  # noqa: S608 - from our own names
        f" ORDER BY c.{field}{' DESC' if is_descending else ''}",
        limit,
        lambda document: BY_KEY in document and document.get(field, until + 1) <= until,
        {"@until": until},
        order=field,
        is_descending=is_descending,
        ids=(SAGA_ID, SAGA_ID),
        is_enough=is_enough,
        may_be_old=True,
    )


def decode_listed(document: Mapping[str, Any], now: float) -> ListedSaga:
    return ListedSaga(
        key=document[BY_KEY],
        state=SagaState(document[BY_STATE].partition("/")[0]),
        kind=document.get("type"),
        started=document.get("started"),
        changed=written_at(document),
        age_seconds=max(0.0, now - written_at(document)),
        region=document["region"],
        waits=document.get("waits"),
        due=document.get(BY_DUE),
    )

"""The kept history of a session, with the state that each of its entries left.

An entry of a large state has only its change, so the state is made again on the way from the first
entry to the last one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shared.domain.change import apply_change
from shared.domain.journal import Entry, StateChange
from shared.storage.documents import written_at
from shared.storage.entries import decode_entry, lacks_state


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry as it was kept, and when it was written, in seconds on the store's clock.

    The entry has its state, unless `is_known` says that the state could not be made again.
    """

    entry: Entry
    written: float
    is_known: bool = True


def build_history(documents: Iterable[Mapping[str, Any]]) -> Iterator[Kept]:
    """The entries of one session, from its stored documents in the order of their positions.

    Of several versions of an entry the newest counts; one that was claimed is older than what took
    its place in the same second. Raises Misconfigured for a journal of a release that cannot be
    read any more.
    """
    whole: Kept | None = None
    change: StateChange | None = None
    for document in newest_versions(documents):
        entry = decode_entry(document)
        kept = Kept(entry, written_at(document))
        at = entry.state_at
        if lacks_state(document):
            whole, kept = None, replace(kept, is_known=False)
        elif entry.state is not None or at is None:
            whole, change = kept, entry.change
        elif whole is None or whole.entry.position != at:
            kept = replace(kept, is_known=False)
        else:
            # An entry of an older release carries the state on, and not its change.
            change = entry.change or change
            state = whole.entry.state or {}
            made = apply_change(state, change.operations) if change else state
            kept = replace(kept, entry=replace(entry, state=made, model=whole.entry.model))
        yield kept


def newest_versions(documents: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    newest: Mapping[str, Any] | None = None
    for document in documents:
        if newest is not None and newest["id"] == document["id"]:
            newest = max(newest, document, key=lambda one: (written_at(one), not is_claim(one)))
            continue
        if newest is not None:
            yield newest
        newest = document
    if newest is not None:
        yield newest


def is_claim(document: Mapping[str, Any]) -> bool:
    return bool(document.get("claimed"))

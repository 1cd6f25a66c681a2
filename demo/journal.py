"""The journal, read with the plain Azure SDK: documents as they are stored, nothing of the engine.

Reading costs request units like any client's; take the counters first.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from demo.history import Entry, Status, entry_of, owed_by
from demo.stack import Stack


@dataclass(frozen=True, slots=True)
class Reading:
    """The entries of every session, and what documents of any kind still owe."""

    entries: tuple[Entry, ...]
    owed: tuple[str, ...]

    def completed(self) -> Iterator[Entry]:
        """Walk over the entries that stand for effects."""
        return (entry for entry in self.entries if entry.status is Status.COMPLETED)


def read_journal(stack: Stack) -> Reading:
    """Read every document of the journal."""
    with journal_container(stack) as container:
        documents = list(container.read_all_items())
    return Reading(
        entries=tuple(entry_of(document) for document in documents if is_entry(document)),
        owed=tuple(name for document in documents if (name := owed_by(document))),
    )


def is_entry(document: Mapping[str, Any]) -> bool:
    """Whether a document is an entry of a session; the journal holds other kinds beside."""
    return document.get("kind") == "entry"


@contextmanager
def journal_container(stack: Stack) -> Iterator[Any]:
    """Open the container; the SDK's own type says Any of nearly everything it returns."""
    from azure.cosmos import CosmosClient

    contract = stack.contract
    with CosmosClient(contract["cosmos"]["endpoint"], contract["cosmos"]["key"]) as client:
        database = client.get_database_client(contract["cosmos"]["database"])
        yield database.get_container_client(contract["containers"]["journal"])

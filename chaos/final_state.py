"""What queues and journal hold at the end, read with the control endpoint and plain azure-cosmos.

Only what the outputs cannot tell: what is left to do, where each session stands, how much is kept.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.cloud import CloudProcess

# What a document is called as long as one of its fields says that something is to be done with it.
UNFINISHED = {"owing": "pending", "claimed": "claimed", "waiting": "parked"}
PENDING = (
    "SELECT c.id FROM c WHERE ARRAY_LENGTH(c.owing) > 0 OR c.claimed = TRUE OR c.waiting = TRUE"
)
# Queues count a message as in one of these states as long as it is to be handled.
STATES = ("active", "locked", "scheduled", "deferred")

type StoredDocument = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FinalState:
    """What is left, as JSON takes it. Entries are old when they are older than `old_seconds`."""

    depths: Mapping[str, Mapping[str, Mapping[str, int]]]
    unfinished: Mapping[str, list[str]]
    kinds: Mapping[str, int]
    heads: Mapping[str, Mapping[str, Any]]
    old_entries: Mapping[str, int]


def read_final_state(cloud: CloudProcess, old_seconds: float) -> FinalState:
    with cloud.open_container() as container:
        documents: list[StoredDocument] = list(container.read_all_items())
    entries = [document for document in documents if document["kind"] == "entry"]
    old_before = time.time() - old_seconds
    return FinalState(
        depths=cloud.control.read_depths(),
        unfinished=name_unfinished(documents),
        kinds=dict(Counter(str(document["kind"]) for document in documents)),
        heads=find_newest_states(entries),
        old_entries=dict(Counter(e["session"] for e in entries if e["_ts"] < old_before)),
    )


def name_unfinished(documents: Iterable[StoredDocument]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {what: [] for what in UNFINISHED.values()}
    for document in documents:
        for field, what in UNFINISHED.items():
            if document.get(field):
                found[what].append(f"{document['session']}/{document['id']}")
    return found


def find_newest_states(entries: Iterable[StoredDocument]) -> dict[str, Mapping[str, Any]]:
    ordered = sorted(entries, key=lambda entry: str(entry["id"]))
    return {entry["session"]: entry["state"] for entry in ordered if entry.get("state")}


def is_idle(cloud: CloudProcess) -> bool:
    """Whether nothing is left to do in any queue, nor in the journal."""
    queues = [queue for region in cloud.control.read_depths().values() for queue in region.values()]
    if any(queue[state] for queue in queues for state in STATES):
        return False
    with cloud.open_container() as container:
        pending = container.query_items(PENDING, enable_cross_partition_query=True)
        return next(iter(pending), None) is None

"""The stored format of the list of regions that a journal is kept for: one document of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.ports import Document

# Where the list is. A session may well have this name: no other document has this id.
REGIONS_SESSION = "$regions"
REGIONS_ID = "regions"


def encode_regions(regions: Sequence[str]) -> Document:
    """The list of regions."""
    names = list(regions)
    return {"id": REGIONS_ID, "session": REGIONS_SESSION, "kind": "regions", "regions": names}


def decode_regions(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(document["regions"])

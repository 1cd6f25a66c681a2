"""The properties that the service writes into every item, beside the user's own."""

from typing import Any

from local.cosmos.answers import compact
from local.cosmos.catalogue import Container, resource_id

SYSTEM_PROPERTIES = ("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn")


def without_system_properties(document: dict[str, Any]) -> dict[str, Any]:
    """The user's part of a document."""
    return {name: value for name, value in document.items() if name not in SYSTEM_PROPERTIES}


def etag_of(version: int) -> str:
    """Tags differ for every version of every item, for the account has one sequence."""
    return f'"00000000-0000-0000-0000-{version:012x}"'


def body_of(
    container: Container, own: dict[str, Any], *, version: int, birth: int, now: int
) -> str:
    """The JSON text of a version: the user's part, then the system properties.

    Clients that merge a sorted query read the birth number of an item, lowest byte first, from the
    end of its resource id.
    """
    rid = resource_id(container.rid_bytes + birth.to_bytes(8, "little"))
    written = {
        "_rid": rid,
        "_self": f"{container.self_link}docs/{rid}/",
        "_etag": etag_of(version),
        "_attachments": "attachments/",
        "_ts": now,
    }
    return compact(own | written)

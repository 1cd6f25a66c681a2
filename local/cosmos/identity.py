"""Rules for the `id` of a resource."""

from typing import Any

from local.cosmos.answers import Refusal

ID_BYTES_MAX = 1023
FORBIDDEN = frozenset("/\\?#")


def check_id(value: Any) -> str:
    """The id itself; a 400 Refusal when it breaks the service's rules."""
    if not isinstance(value, str) or not value:
        raise Refusal(400, "the required property 'id' is missing or is not a string")
    if len(value.encode()) > ID_BYTES_MAX:
        raise Refusal(400, f"id may have {ID_BYTES_MAX} bytes at most")
    if FORBIDDEN.intersection(value):
        raise Refusal(400, f"id {value!r} holds one of the forbidden characters / \\ ? #")
    return value

"""How deep a document may be: 128 levels, by "Azure Cosmos DB service quotas"."""

from typing import Any

from local.cosmos.answers import Refusal

LEVELS_MAX = 128


def check_nesting(document: Any, text: str) -> None:
    """Raise a 400 Refusal for a document nested too deeply; `text` is its JSON.

    Most documents do not even have that many brackets, and are not walked.
    """
    if text.count("[") + text.count("{") <= LEVELS_MAX:
        return
    level = [document]
    for _ in range(LEVELS_MAX):
        level = [inner for outer in level for inner in children(outer)]
        if not level:
            return
    raise Refusal(400, f"a document may be nested {LEVELS_MAX} levels at most")


def children(value: dict[str, Any] | list[Any]) -> list[Any]:
    """The objects and arrays directly inside one."""
    inside = value.values() if isinstance(value, dict) else value
    return [inner for inner in inside if isinstance(inner, dict | list)]

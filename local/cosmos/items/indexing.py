"""Indexing policies: which properties of an item cost a write, and what a query may order by.

Specification: "Indexing policies in Azure Cosmos DB". Paths end in `/?` (a scalar), or `/*`
(everything below); the more precise path wins, and a scalar path over a wildcard of equal depth.
Spatial, vector and full-text indexes are refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from local.cosmos.answers import Refusal, unsupported

type Path = tuple[str, ...]

ALWAYS_INDEXED: frozenset[Path] = frozenset({("id",), ("_ts",)})
KNOWN_KEYS = {"indexingMode", "automatic", "includedPaths", "excludedPaths", "compositeIndexes"}
DEFAULT_POLICY: dict[str, Any] = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One included or excluded path; `is_scalar` tells `/a/?` from `/a/*`."""

    path: Path
    is_scalar: bool
    is_included: bool

    def matches(self, path: Path) -> bool:
        """Whether the rule speaks of the leaf at `path`."""
        if self.is_scalar:
            return self.path == path
        return path[: len(self.path)] == self.path

    @property
    def precision(self) -> tuple[int, bool]:
        """Longer beats shorter, scalar beats wildcard."""
        return len(self.path), self.is_scalar


@dataclass(frozen=True, slots=True)
class IndexingPolicy:
    """A parsed policy; `rules` are ordered by precision, most precise first."""

    rules: tuple[Rule, ...]
    composites: tuple[tuple[tuple[Path, bool], ...], ...] = ()

    def covers(self, path: Path) -> bool:
        """Whether the scalar at `path` is indexed."""
        if path in ALWAYS_INDEXED:
            return True
        return next((rule.is_included for rule in self.rules if rule.matches(path)), False)

    def effects(self, document: dict[str, Any]) -> int:
        """How many indexed scalars the user's part of a document has."""
        if not self._has_wildcard_include():
            included = [rule.path for rule in self.rules if rule.is_included]
            return sum(scalars_at(document, path) for path in included)
        return sum(self.covers(path) for path in leaves(document))

    def can_order_by(self, keys: list[tuple[Path, bool]]) -> bool:
        """Whether an ORDER BY is servable; keys pair a path with "descending".

        Two or more paths need a composite index in the same directions, or all reversed.
        """
        if len(keys) == 1:
            return self.covers(keys[0][0])
        reverse = [(path, not descending) for path, descending in keys]
        return tuple(keys) in self.composites or tuple(reverse) in self.composites

    def _has_wildcard_include(self) -> bool:
        return any(rule.is_included and not rule.is_scalar for rule in self.rules)


def parse_policy(document: Any) -> IndexingPolicy:
    """Read an `indexingPolicy`; a Refusal names what is not offered."""
    if not isinstance(document, dict):
        raise Refusal(400, "indexingPolicy must be an object")
    for key in document:
        if key not in KNOWN_KEYS and document[key]:
            raise unsupported(f"{key} in an indexing policy")
    if str(document.get("indexingMode", "consistent")).lower() == "none":
        return IndexingPolicy(())
    return IndexingPolicy(parse_rules(document), parse_composites(document))


def parse_rules(document: dict[str, Any]) -> tuple[Rule, ...]:
    """The included and excluded paths, most precise first."""
    rules = [
        parse_rule(entry, is_included=key == "includedPaths")
        for key in ("includedPaths", "excludedPaths")
        for entry in list_at(document, key)
    ]
    return tuple(sorted(rules, key=lambda rule: rule.precision, reverse=True))


def parse_rule(entry: Any, *, is_included: bool) -> Rule:
    """Read `{"path": "/session/?"}`."""
    text = entry.get("path") if isinstance(entry, dict) else None
    if not isinstance(text, str) or not text.startswith("/") or text[-2:] not in ("/?", "/*"):
        raise Refusal(400, f"an indexing path must look like /name/? or /name/*, not {text!r}")
    return Rule(path_names(text[:-2]), text.endswith("?"), is_included)


def parse_composites(document: dict[str, Any]) -> tuple[tuple[tuple[Path, bool], ...], ...]:
    """The composite indexes as tuples of (path, descending)."""
    try:
        return tuple(
            tuple((path_names(p["path"]), p.get("order") == "descending") for p in index)
            for index in list_at(document, "compositeIndexes")
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise Refusal(400, "compositeIndexes must be lists of path and order") from error


def list_at(document: dict[str, Any], key: str) -> list[Any]:
    """A list of the policy, empty when absent."""
    value = document.get(key) or []
    if not isinstance(value, list):
        raise Refusal(400, f"{key} of an indexing policy must be a list")
    return value


def path_names(text: str) -> Path:
    """`/a/"b"` as ("a", "b")."""
    return tuple(name.strip('"') for name in text.strip("/").split("/") if name)


def scalars_at(value: Any, path: Path) -> int:
    """How many scalars stand at the path; `[]` leads to every element of an array."""
    match path, value:
        case (), _:
            return not isinstance(value, dict | list)
        case ("[]", *rest), list():
            return sum(scalars_at(inner, tuple(rest)) for inner in value)
        case (name, *rest), dict() if name in value:
            return scalars_at(value[name], tuple(rest))
        case _:
            return 0


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all scalars; array elements count under `[]`."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from leaves(inner, (*path, name))
        case list():
            for inner in value:
                yield from leaves(inner, (*path, "[]"))
        case _:
            yield path

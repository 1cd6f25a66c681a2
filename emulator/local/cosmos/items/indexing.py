"""Indexing policies: which properties of an item cost a write, and what a query may order by.

Specification: "Indexing policies in Azure Cosmos DB". Paths end in `/?` (a scalar), or `/*`
(everything below); the more precise path wins, and a scalar path over a wildcard of equal depth.
Spatial, vector and full-text indexes are refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from local.cosmos.responses import BadRequest, NotOffered

type IndexPath = tuple[str, ...]
type OrderPaths = tuple[tuple[IndexPath, bool], ...]  # each with "descending"

ALWAYS_INDEXED: frozenset[IndexPath] = frozenset({("id",), ("_ts",)})
KNOWN_KEYS = {"indexingMode", "automatic", "includedPaths", "excludedPaths", "compositeIndexes"}
DEFAULT_POLICY: dict[str, Any] = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}


@dataclass(frozen=True, slots=True)
class PathRule:
    """One included or excluded path; `is_scalar` tells `/a/?` from `/a/*`."""

    path: IndexPath
    is_scalar: bool
    is_included: bool

    def matches(self, path: IndexPath) -> bool:
        return self.path == (path if self.is_scalar else path[: len(self.path)])


@dataclass(frozen=True, slots=True)
class IndexingPolicy:
    """A parsed policy; `rules` are ordered by precision, most precise first."""

    rules: tuple[PathRule, ...]
    composites: tuple[OrderPaths, ...] = ()

    def covers(self, path: IndexPath) -> bool:
        if path in ALWAYS_INDEXED:
            return True
        return next((rule.is_included for rule in self.rules if rule.matches(path)), False)

    def count_indexed(self, document: dict[str, Any]) -> int:
        """Return how many indexed scalars the user's part of a document has."""
        included = [rule for rule in self.rules if rule.is_included]
        if all(rule.is_scalar for rule in included):  # then there is no need to walk the document
            return sum(count_scalars(document, rule.path) for rule in included)
        return sum(self.covers(path) for path in list_leaves(document))

    def can_order_by(self, keys: OrderPaths) -> bool:
        """Return whether an ORDER BY is servable.

        Two or more paths need a composite index in the same directions, or all reversed.
        """
        if len(keys) == 1:
            return self.covers(keys[0][0])
        reverse = tuple((path, not descending) for path, descending in keys)
        return keys in self.composites or reverse in self.composites


def parse_policy(document: Any) -> IndexingPolicy:
    """Read an `indexingPolicy`; a refusal names what is not offered."""
    if not isinstance(document, dict):
        raise BadRequest("indexingPolicy must be an object")
    for key in document:
        if key not in KNOWN_KEYS and document[key]:
            raise NotOffered(f"{key} in an indexing policy")
    if str(document.get("indexingMode", "consistent")).lower() == "none":
        return IndexingPolicy(())
    rules = [
        parse_rule(entry, is_included=key == "includedPaths")
        for key in ("includedPaths", "excludedPaths")
        for entry in read_list(document, key)
    ]
    rules.sort(key=lambda rule: (len(rule.path), rule.is_scalar), reverse=True)
    try:
        composites = tuple(
            tuple((split_path(p["path"]), p.get("order") == "descending") for p in index)
            for index in read_list(document, "compositeIndexes")
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise BadRequest("compositeIndexes must be lists of path and order") from error
    return IndexingPolicy(tuple(rules), composites)


def add_root(document: Any) -> Any:
    """The policy as the service keeps it: where no path says what is with the root, it is indexed.

    Then `_etag` is not. A policy that names no path at all gets the default paths. What kinds of
    index an included path asks for is an old setting without effect, and is not kept. What is no
    policy stays as it is.
    """
    if not isinstance(document, dict):
        return document
    if str(document.get("indexingMode", "consistent")).lower() == "none":
        return document
    included, excluded = read_list(document, "includedPaths"), read_list(document, "excludedPaths")
    if not included and not excluded:
        return DEFAULT_POLICY | {key: value for key, value in document.items() if value}
    if not any(is_root(one) for one in included + excluded):
        included = [{"path": "/*"}, *included]
    included = [
        {key: value for key, value in one.items() if key != "indexes"}
        if isinstance(one, dict)
        else one
        for one in included
    ]
    if any(is_root(one) for one in included):
        excluded += [path for path in DEFAULT_POLICY["excludedPaths"] if path not in excluded]
    return document | {"includedPaths": included, "excludedPaths": excluded}


def is_root(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("path") in ("/", "/*")


def parse_rule(entry: Any, *, is_included: bool) -> PathRule:
    """Read `{"path": "/session/?"}`."""
    text = entry.get("path") if isinstance(entry, dict) else None
    if text == "/":  # all of the item, as policies were written once
        text = "/*"
    if not isinstance(text, str) or not text.startswith("/") or text[-2:] not in ("/?", "/*"):
        raise BadRequest(f"an indexing path must look like /name/? or /name/*, not {text!r}")
    return PathRule(split_path(text[:-2]), text.endswith("?"), is_included)


def read_list(document: dict[str, Any], key: str) -> list[Any]:
    value = document.get(key) or []
    if not isinstance(value, list):
        raise BadRequest(f"{key} of an indexing policy must be a list")
    return list(value)


def split_path(text: str) -> IndexPath:
    """`/a/"b"` as ("a", "b")."""
    return tuple(name.strip('"') for name in text.strip("/").split("/") if name)


def count_scalars(value: Any, path: IndexPath) -> int:
    """Return how many scalars stand at the path; `[]` leads to every element of an array."""
    match path, value:
        case (), _:
            return not isinstance(value, dict | list)
        case ("[]", *rest), list():
            return sum(count_scalars(inner, tuple(rest)) for inner in value)
        case (name, *rest), dict() if name in value:
            return count_scalars(value[name], tuple(rest))
        case _:
            return 0


def list_leaves(value: Any, path: IndexPath = ()) -> Iterator[IndexPath]:
    """The paths of all scalars; array elements count under `[]`."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from list_leaves(inner, (*path, name))
        case list():
            for inner in value:
                yield from list_leaves(inner, (*path, "[]"))
        case _:
            yield path

"""The published types of the resources that infra/ declares, and what in a body they do not allow.

The types are Microsoft's own description of Azure Resource Manager, the one that Bicep's compiler
reads (https://github.com/Azure/bicep-types-az). `published_types.json` holds those that are used
here, in the published format, without what is read-only. To write it again, after a type or a
version has changed, give the `types.json` files of these versions to

    python -m tests.infra.published FILE...

Promised: type and version exist; every property is known, spelled as published, and not read-only;
what is required is there; values have the right kind, are among those listed, and keep the limits
of length, number and pattern. Not promised: a value that only a deployment has is believed, and
what a service asks beyond its published type (quotas, regions, combinations) is not looked at.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.infra.bicep import INFRA, Kind, read
from tests.infra.evaluation import Resource, Template, Unknown, Value

STORED = Path(__file__).with_name("published_types.json")
REQUIRED, READ_ONLY = 1, 2

# Bicep's own keys of a resource, which are no part of what is sent.
OF_BICEP = {"parent", "scope", "dependsOn"}

# What uniqueString gives: thirteen lower-case letters and digits.
UNIQUE = re.compile(r"<uniqueString\([^>]*\)>")

type Published = list[dict[str, Any]]
type Finding = tuple[str, str]


def type_findings(templates: Iterable[Template], published: Published) -> list[str]:
    """One sentence for each thing in the resources of these templates that is not as published."""
    return [
        f"{resource.template.bicep.path.name}: {resource.declaration.name}{path} {what}"
        for template in templates
        for resource in template.resources()
        for path, what in resource_findings(resource, published)
    ]


def resource_findings(resource: Resource, published: Published) -> Iterator[Finding]:
    target = resource.declaration.target
    known = {t["name"].lower(): t for t in published if t["$type"] == "ResourceType"}
    if target.lower() not in known:
        yield "", f"has a type that is not published: {target}"
    elif not resource.declaration.is_existing:
        body = {key: value for key, value in resource.body.items() if key not in OF_BICEP}
        yield from findings(body, referred(known[target.lower()]["body"], published), "", published)


def findings(
    value: Value, expected: dict[str, Any], path: str, published: Published
) -> Iterator[Finding]:
    """Where a value differs from a published type, each with its path. KeyError: unknown kind."""
    if isinstance(value, Unknown | Resource | Template):
        return
    yield from KINDS[expected["$type"]](value, expected, path, published)


def chosen_findings(
    value: Value, expected: dict[str, Any], path: str, published: Published
) -> Iterator[Finding]:
    """The value of one key says which of several objects this is."""
    key = expected["discriminator"]
    chosen = value.get(key) if isinstance(value, dict) else None
    if not isinstance(chosen, str) or chosen not in expected["elements"]:
        yield f"{path}.{key}", f"is {chosen!r}, none of {sorted(expected['elements'])}"
        return
    element = referred(expected["elements"][chosen], published)
    properties = expected["baseProperties"] | element["properties"]
    yield from object_findings(value, element | {"properties": properties}, path, published)


def object_findings(
    value: Value, expected: dict[str, Any], path: str, published: Published
) -> Iterator[Finding]:
    if not isinstance(value, dict):
        yield path, f"is {value!r}, not an object"
        return
    properties, others = expected["properties"], expected.get("additionalProperties")
    for key, found in value.items():
        if key in properties:
            if properties[key]["flags"] & READ_ONLY:
                yield f"{path}.{key}", "is read-only"
            else:
                inner = referred(properties[key]["type"], published)
                yield from findings(found, inner, f"{path}.{key}", published)
        elif others is not None:
            yield from findings(found, referred(others, published), f"{path}.{key}", published)
        else:
            yield f"{path}.{key}", f"is no property; known are {sorted(properties)}"
    for key, known in properties.items():
        if known["flags"] & REQUIRED and key not in value:
            yield f"{path}.{key}", "is required and missing"


def union_findings(
    value: Value, expected: dict[str, Any], path: str, published: Published
) -> Iterator[Finding]:
    """A value outside the list is a finding even where newer ones may follow, as for Bicep."""
    elements = [referred(element, published) for element in expected["elements"]]
    listed = [element["value"] for element in elements if "value" in element]
    if listed and value not in listed:
        yield path, f"is {value!r}, none of {listed}"
    elif not listed and all(list(findings(value, one, path, published)) for one in elements):
        yield path, f"is {value!r}, which no type of the union takes"


def array_findings(
    value: Value, expected: dict[str, Any], path: str, published: Published
) -> Iterator[Finding]:
    if not isinstance(value, list):
        yield path, f"is {value!r}, not an array"
        return
    item = referred(expected["itemType"], published)
    for index, element in enumerate(value):
        yield from findings(element, item, f"{path}[{index}]", published)


def literal_findings(
    value: Value, expected: dict[str, Any], path: str, _: Published
) -> Iterator[Finding]:
    if value != expected["value"]:
        yield path, f"is {value!r}, not {expected['value']!r}"


def boolean_findings(
    value: Value, _: dict[str, Any], path: str, __: Published
) -> Iterator[Finding]:
    if not isinstance(value, bool):
        yield path, f"is {value!r}, not a boolean"


def integer_findings(
    value: Value, expected: dict[str, Any], path: str, _: Published
) -> Iterator[Finding]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield path, f"is {value!r}, not an integer"
    elif not expected.get("minValue", value) <= value <= expected.get("maxValue", value):
        yield path, f"is {value}, outside its limits"


def string_findings(
    value: Value, expected: dict[str, Any], path: str, _: Published
) -> Iterator[Finding]:
    if not isinstance(value, str):
        yield path, f"is {value!r}, not a string"
        return
    whole = UNIQUE.sub("a1" * 6 + "a", value)
    if "<" in whole:  # a part of it is known to the deployment only
        return
    if not expected.get("minLength", 0) <= len(whole) <= expected.get("maxLength", len(whole)):
        yield path, f"is {len(whole)} characters long, outside its limits: {whole}"
    if not re.search(expected.get("pattern", ""), whole):
        yield path, f"is {whole!r}, which does not match {expected['pattern']}"


def no_findings(_: Value, __: dict[str, Any], ___: str, ____: Published) -> Iterator[Finding]:
    """Of the kind that takes anything."""
    return iter(())


KINDS: dict[str, Callable[[Value, dict[str, Any], str, Published], Iterator[Finding]]] = {
    "AnyType": no_findings,
    "ArrayType": array_findings,
    "BooleanType": boolean_findings,
    "DiscriminatedObjectType": chosen_findings,
    "IntegerType": integer_findings,
    "ObjectType": object_findings,
    "StringLiteralType": literal_findings,
    "StringType": string_findings,
    "UnionType": union_findings,
}


def referred(reference: dict[str, str], published: Published) -> dict[str, Any]:
    return published[int(reference["$ref"].rpartition("/")[2])]


def select(files: Iterable[Published], targets: Iterable[str]) -> Published:
    """The resource types named, with all they refer to, numbered anew.

    LookupError names a target that no file describes.
    """
    kept: Published = []
    everything: list[tuple[Published, dict[int, int]]] = [(types, {}) for types in files]
    for target in sorted({target.lower() for target in targets}):
        for types, numbers in everything:
            found = [i for i, t in enumerate(types) if t.get("name", "").lower() == target]
            if found and types[found[0]]["$type"] == "ResourceType":
                copy(types, found[0], kept, numbers)
                break
        else:
            raise LookupError(f"no file describes {target}")
    return kept


def copy(types: Published, index: int, kept: Published, numbers: dict[int, int]) -> int:
    """Copy one type and what it refers to; types may refer to themselves."""
    if index in numbers:
        return numbers[index]
    numbers[index] = len(kept)
    kept.append({})
    kept[numbers[index]] = renumber(types[index], types, kept, numbers)
    return numbers[index]


def renumber(part: Any, types: Published, kept: Published, numbers: dict[int, int]) -> Any:
    match part:
        case {"$ref": str(reference)}:
            number = copy(types, int(reference.rpartition("/")[2]), kept, numbers)
            return {"$ref": f"#/{number}"}
        case {"flags": int(flags)} if flags & READ_ONLY:
            return {"flags": flags}
        case dict():
            # Of a type it is a text; a property may have that name, too.
            said = {
                key: found
                for key, found in part.items()
                if key != "description" or not isinstance(found, str)
            }
            return {key: renumber(found, types, kept, numbers) for key, found in said.items()}
        case list():
            return [renumber(found, types, kept, numbers) for found in part]
    return part


def load_published() -> Published:
    loaded: Published = json.loads(STORED.read_text(encoding="utf-8"))
    return loaded


if __name__ == "__main__":
    used = {
        resource.target
        for path in INFRA.glob("*.bicep")
        for resource in read(path).of(Kind.RESOURCE).values()
    }
    given = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:])
    lines = (json.dumps(one, separators=(",", ":")) for one in select(given, used))
    STORED.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")

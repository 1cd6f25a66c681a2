"""What a deployment creates, as Microsoft's compiler works it out without Azure.

A value that only Azure knows is in a snapshot (`infra/snapshots/`) as the expression that asks for
it, `[reference(...)]`.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.infra.bicep import INFRA

SNAPSHOTS = INFRA / "snapshots"

type Resources = list[dict[str, Any]]


def read_snapshot(name: str = "default") -> Resources:
    """The resources of a snapshot, each with its final id, type, name and properties."""
    text = (SNAPSHOTS / f"{name}.snapshot.json").read_text(encoding="utf-8")
    return list(json.loads(text)["predictedResources"])


def of_type(resources: Resources, kind: str) -> Iterator[dict[str, Any]]:
    """The resources of one type, such as `Microsoft.Web/sites`."""
    return (one for one in resources if one["type"].lower() == kind.lower())

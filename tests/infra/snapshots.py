"""What a deployment creates, as Microsoft's compiler works it out without Azure.

`infra/snapshots/` has for each of its `.bicepparam` files every resource with its final name and
properties. A value that only Azure knows is there as the expression that asks for it,
`[reference(...)]`. `python -m tests.infra.compiler` writes them anew.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

INFRA = Path(__file__).parents[2] / "infra"
FOLDER = INFRA / "snapshots"

type Resource = dict[str, Any]


class Resources(list[Resource]):
    """What a snapshot creates, by each resource's final id, type, name and properties."""

    name = ""


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def read_snapshot(name: str = "default") -> Resources:
    found = Resources(load(FOLDER / f"{name}.snapshot.json")["predictedResources"])
    found.name = name
    return found


def read_outputs(name: str = "default") -> dict[str, Any]:
    """What azd is told after the deployment of a snapshot."""
    return dict(load(FOLDER / f"{name}.snapshot.json")["outputs"])


def of_type(resources: Resources, kind: str, region: str = "") -> list[Resource]:
    """The resources of one type, such as `Microsoft.Web/sites`, of one region or of all."""
    mine = re.compile(rf"[-/](?:lockstep-|st|network-){region}(?![a-z]*\.)")
    found = [one for one in resources if one["type"].lower() == kind.lower()]
    return [one for one in found if not region or mine.search(one["id"])]


def only(resources: Resources, kind: str, region: str = "", name: str = "") -> Resource:
    """The one resource of a type, of a region or of all, whose name ends so."""
    found = [one for one in of_type(resources, kind, region) if one["name"].endswith(name)]
    assert len(found) == 1, f"{len(found)} of {kind} {region} {name}"
    return found[0]


def regions_of(resources: Resources) -> list[str]:
    """The regions that process, by the services of azure.yaml that azd publishes to."""
    return [app["tags"]["azd-service-name"] for app in of_type(resources, "Microsoft.Web/sites")]


def app_settings(resources: Resources, region: str) -> dict[str, Any]:
    return dict(only(resources, "Microsoft.Web/sites/config", region, "/appsettings")["properties"])

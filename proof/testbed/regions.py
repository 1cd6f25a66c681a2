"""A local cloud with more regions than its configuration names."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import Any

from local.testing.cloud import CloudProcess
from proof.testbed.cloud import SECONDARY_DELAY_SECONDS, running_cloud
from proof.testbed.command import RunFailed

# A storage account in Azure carries it.
NAME_MAX = 9


def prepare_cloud(
    app: Path, config: Path, more: Sequence[str], directory: Path
) -> AbstractContextManager[CloudProcess]:
    """Run a cloud for one `with` block, for a person to watch: what it keeps lies in the directory.

    The other regions see copies sooner than by default. Raises as `keep_config` does before
    anything starts, and ChildFailed in the block when the cloud does not become ready.
    """
    kept = keep_config(config, more, directory)
    return running_cloud(
        *("--app", str(app), "--config", str(kept), "--data", str(directory / "cloud")),
        logs=directory / "logs",
        settings={"LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS)},
    )


def keep_config(config: Path, more: Sequence[str], directory: Path) -> Path:
    """Write what a run's cloud is made of into its directory, with further regions.

    Raises RunFailed for a name that cannot be one, and where an earlier run had other regions: its
    journal knows them.
    """
    grown, kept = add_regions(json.loads(config.read_text("utf-8")), more), directory / config.name
    names = grown["Hosts"]["Regions"]
    if kept.exists():
        before = json.loads(kept.read_text("utf-8"))["Hosts"]["Regions"]
        if before != names:
            text = f"{directory} was begun with the regions {', '.join(before)}"
            raise RunFailed(f"{text} and not {', '.join(names)}; use --fresh or --data")
    kept.write_text(json.dumps(grown, indent=2), encoding="utf-8")
    return kept


def add_regions(config: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a configuration with a namespace, a host and settings more for each name.

    Raises RunFailed for a name that is there already or cannot be one.
    """
    grown = deepcopy(config)
    namespaces, hosts = grown["UserConfig"]["Namespaces"], grown["Hosts"]
    locations, values = grown["Cosmos"]["Regions"], hosts["Values"]
    for name in names:
        if not (name.isascii() and name.isalnum() and name.islower() and len(name) <= NAME_MAX):
            text = f"at most {NAME_MAX} lower-case letters and digits"
            raise RunFailed(f"{name!r} cannot name a region: {text}")
        if name in hosts["Regions"]:
            raise RunFailed(f"there is a region {name} already")
        namespaces.append({**deepcopy(namespaces[0]), "Name": name})
        hosts["Regions"].append(name)
        values["LOCKSTEP_REGIONS"] += f",{name}"
        values[f"ServiceBus_{name}"] = f"{{servicebus.{name}}}"
        if name not in locations:
            locations.append(name)
            values["LOCKSTEP_COSMOS_LOCATIONS"] += f",{name}"
    return grown

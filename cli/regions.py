"""The configuration of Azure on one machine, with more regions than it names."""

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from cli.failures import CommandFailed

# Two regions, for an app that has no file of this name.
CONFIG = Path(__file__).with_name("local.config.json")
# A storage account in Azure carries it.
NAME_MAX = 9


def find_config(app: Path) -> Path:
    """The configuration of an app: its own file of this name, or Lockstep's."""
    own = app / CONFIG.name
    return own if own.exists() else CONFIG


def read_config(path: Path) -> dict[str, Any]:
    """Read a configuration; raises CommandFailed where it lacks what is looked up in it here."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        for section, name in (
            *(("UserConfig", "Namespaces"), ("Cosmos", "Regions")),
            *(("Hosts", "Regions"), ("Hosts", "Values")),
        ):
            found[section][name]
    except KeyError as error:
        raise CommandFailed(f"{path}: there is no {error.args[0]}") from None
    except (OSError, ValueError, TypeError) as error:
        raise CommandFailed(f"{path} is no configuration of a local cloud: {error}") from None
    return found


def keep_config(config: Path, more: Sequence[str], directory: Path) -> Path:
    """Write what a run's cloud is made of into its directory, with further regions.

    Raises CommandFailed for a name that cannot be one, and where an earlier run had other regions:
    its journal knows them.
    """
    grown, kept = add_regions(read_config(config), more), directory / config.name
    names = grown["Hosts"]["Regions"]
    if kept.exists():
        before = json.loads(kept.read_text("utf-8"))["Hosts"]["Regions"]
        if before != names:
            text = f"{directory} was begun with the regions {', '.join(before)}"
            raise CommandFailed(f"{text} and not {', '.join(names)}; use --fresh or --data")
    kept.write_text(json.dumps(grown, indent=2), encoding="utf-8")
    return kept


def add_regions(config: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a configuration with a namespace, a host and settings more for each name.

    Raises CommandFailed for a name that is there already or cannot be one.
    """
    grown = deepcopy(config)
    namespaces, hosts = grown["UserConfig"]["Namespaces"], grown["Hosts"]
    locations, values = grown["Cosmos"]["Regions"], hosts["Values"]
    for name in names:
        if not (name.isascii() and name.isalnum() and name.islower() and len(name) <= NAME_MAX):
            text = f"at most {NAME_MAX} lower-case letters and digits"
            raise CommandFailed(f"{name!r} cannot name a region: {text}")
        if name in hosts["Regions"]:
            raise CommandFailed(f"there is a region {name} already")
        namespaces.append({**deepcopy(namespaces[0]), "Name": name})
        hosts["Regions"].append(name)
        values["LOCKSTEP_REGIONS"] += f",{name}"
        values[f"ServiceBus_{name}"] = f"{{servicebus.{name}}}"
        if name not in locations:
            locations.append(name)
            values["LOCKSTEP_COSMOS_LOCATIONS"] += f",{name}"
    return grown

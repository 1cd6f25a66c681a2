"""The app's directory: the product's host.json and local config with a queue more, and our app."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.names import EFFECTS_QUEUE
from demo.children import ROOT

HERE = Path(__file__).parent
# What a killed host held is free again after this, not after the product's longer time.
LOCK_DURATION = "PT10S"
EFFECTS = {
    "Name": EFFECTS_QUEUE,
    "Properties": {"LockDuration": "PT20S", "MaxDeliveryCount": 2000},
}


def compose_app(directory: Path) -> None:
    """Write the app's directory, or write it anew."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "function_app.py", directory)
    shutil.copy(ROOT / "host.json", directory)
    config = json.loads((ROOT / "local.config.json").read_text(encoding="utf-8"))
    text = json.dumps(with_effects_queue(config), indent=2)
    (directory / "local.config.json").write_text(text, encoding="utf-8")


def with_effects_queue(config: Mapping[str, Any]) -> dict[str, Any]:
    """The product's local config with the queue of effects, and without a task hub."""
    namespaces = [
        {**namespace, "Queues": [*map(quick, namespace["Queues"]), EFFECTS]}
        for namespace in config["UserConfig"]["Namespaces"]
    ]
    hosts = config["Hosts"]
    values = {name: text for name, text in hosts["Values"].items() if "{durable" not in text}
    return {
        **config,
        "UserConfig": {**config["UserConfig"], "Namespaces": namespaces},
        "Hosts": {**hosts, "Values": values},
    }


def quick(queue: Mapping[str, Any]) -> dict[str, Any]:
    """A queue whose locks run out soon."""
    return {**queue, "Properties": {**queue["Properties"], "LockDuration": LOCK_DURATION}}

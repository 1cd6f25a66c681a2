"""An app for a local cloud that has triggers of the product and handlers of its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.regions import CONFIG
from proof.testbed.cloud import ROOT


def compose_app(
    source: Path,
    directory: Path,
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Put an app into a directory, with the product's limits and its cloud without a task hub.

    `adapt` may change the configuration of the cloud.
    """
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "function_app.py", directory)
    shutil.copy(ROOT / "host.json", directory)
    config = json.loads(CONFIG.read_text(encoding="utf-8"))
    values = config["Hosts"]["Values"]
    config["Hosts"]["Values"] = {k: v for k, v in values.items() if "{durable" not in v}
    text = json.dumps(adapt(config), indent=2)
    (directory / CONFIG.name).write_text(text, encoding="utf-8")

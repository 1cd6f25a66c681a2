"""Azure on one machine with the app of this checkout."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from cli.regions import CONFIG
from local.testing import cloud
from local.testing.cloud import CloudProcess

ROOT = Path(__file__).resolve().parents[2]
# By this a host overrules how many messages of a session its host.json hands over at once.
CALLS_SETTING = "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentCallsPerSession"


def running_cloud(
    *arguments: str, logs: Path | None = None, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[CloudProcess]:
    """Run `python -m local serve` from the root of the checkout, for one `with` block.

    An app that is named has a configuration of its own; the checkout's is the product's.
    """
    if not {"--app", "--config"} & set(arguments):
        arguments += ("--config", str(CONFIG))
    return cloud.running_cloud(*arguments, logs=logs, settings=settings, cwd=ROOT)

"""Azure on one machine with the app of this checkout, and what an app outside its hosts needs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from local.testing import cloud
from local.testing.cloud import CloudProcess

ROOT = Path(__file__).resolve().parents[2]
# How long after the primary region's copy of a message the secondary's becomes visible.
SECONDARY_DELAY_SECONDS = 5
# By this a host overrules how many messages of a session its host.json hands over at once.
CALLS_SETTING = "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentCallsPerSession"


def running_cloud(
    *arguments: str, logs: Path | None = None, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[CloudProcess]:
    """Run `python -m local serve` from the root of the checkout, for one `with` block."""
    return cloud.running_cloud(*arguments, logs=logs, settings=settings, cwd=ROOT)


def app_settings(served: CloudProcess) -> dict[str, str]:
    """Return the settings by which an app outside the hosts, such as a sender, reaches a cloud."""
    buses, containers = served.contract["servicebus"], served.contract["containers"]
    return {
        "LOCKSTEP_REGIONS": ",".join(buses),
        "LOCKSTEP_REGION": next(iter(buses)),
        "LOCKSTEP_QUEUE": served.queue,
        "LOCKSTEP_OUTPUT_QUEUE": "lockstep-out",
        "LOCKSTEP_DATABASE": served.contract["cosmos"]["database"],
        "LOCKSTEP_JOURNAL": containers["journal"],
        "LOCKSTEP_LEASES": containers["leases"],
        "LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS),
        "Cosmos": served.cosmos_connection,
        **{f"ServiceBus_{region}": text for region, text in buses.items()},
    }

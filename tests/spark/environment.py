"""The environment of a job that is a process of its own: where a cloud is, and a quick Spark."""

import os

from local.cloud import Cloud
from tests.spark.conftest import QUICK_JAVA

QUICK = {"JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {QUICK_JAVA}"}


def settings_for(cloud: Cloud, **settings: str) -> dict[str, str]:
    """App settings that reach a cloud."""
    return {
        "LOCKSTEP_REGIONS": ",".join(cloud.namespaces),
        "Cosmos": cloud.cosmos.connection_string,
        **{f"ServiceBus_{name}": each.connection_string for name, each in cloud.namespaces.items()},
        **settings,
    }

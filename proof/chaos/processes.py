"""The processes of a run: the cloud with our app, the sender, and the recorder."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from cli.cloud import SECONDARY_DELAY_SECONDS, app_settings
from local.testing.children import Child
from local.testing.cloud import CloudProcess, reserve_ports
from proof.chaos.messages import BUSES_SETTING, EFFECTS_QUEUE, FULL_RATE_SIGNAL, RUNS_SETTING
from proof.chaos.options import ChaosOptions, RunFiles
from proof.testbed.apps import compose_app
from proof.testbed.cloud import CALLS_SETTING, ROOT, running_cloud

APP = Path(__file__).parent / "app"
# How old an entry is before it may be compacted, and how often that is done: P8 in minutes.
RETENTION_SECONDS = 30
COMPACT_SECONDS = 10
DAY_SECONDS = 24 * 3600
# What a killed host held is free again after this, not after the product's longer time.
LOCK_DURATION = "PT10S"
EFFECTS = {"Name": EFFECTS_QUEUE, "Properties": {"LockDuration": "PT20S", "MaxDeliveryCount": 2000}}
# Messages of a session that a host hands over at once.
CALLS = "16"
# The sender ends what it has begun, and the journal may be slow to take it.
GRACE_SECONDS = 90.0


@contextmanager
def running_app_cloud(files: RunFiles) -> Iterator[CloudProcess]:
    """Run the cloud with our app, on ports that it keeps over a kill; raises ChildFailed."""
    compose_app(APP, files.app, adapt_config)
    days = f"{RETENTION_SECONDS / DAY_SECONDS:.9f}"
    # Leases, delays and retention short enough for a run of minutes.
    settings = {
        "LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS),
        "LOCKSTEP_GAP_WAIT_SECONDS": "2",
        "LOCKSTEP_LEASE_SECONDS": "10",
        "LOCKSTEP_SWEEP_SCHEDULE": "*/5 * * * * *",
        "LOCKSTEP_COMPACT_SCHEDULE": f"*/{COMPACT_SECONDS} * * * * *",
        "LOCKSTEP_WINDOW_DAYS": days,
        "LOCKSTEP_RETENTION_DAYS": days,
        CALLS_SETTING: CALLS,
        RUNS_SETTING: str(files.runs),
    }
    with reserve_ports() as base:
        place = ("--app", str(files.app), "--data", str(files.cloud), "--port-base", str(base))
        with running_cloud(*place, logs=files.logs, settings=settings) as cloud:
            yield cloud


def adapt_config(config: dict[str, Any]) -> dict[str, Any]:
    """Give the queues of a configuration short locks, and each namespace a queue of effects."""
    namespaces = []
    for namespace in config["UserConfig"]["Namespaces"]:
        queues = [
            {**queue, "Properties": {**queue["Properties"], "LockDuration": LOCK_DURATION}}
            for queue in namespace["Queues"]
        ]
        namespaces.append({**namespace, "Queues": [*queues, EFFECTS]})
    return {**config, "UserConfig": {**config["UserConfig"], "Namespaces": namespaces}}


def running_recorder(cloud: CloudProcess, files: RunFiles) -> AbstractContextManager[Child]:
    command = [sys.executable, "-m", "proof.chaos.recorder", str(files.received)]
    buses = {BUSES_SETTING: json.dumps(cloud.contract["servicebus"])}
    return Child(command, log=files.logs / "recorder.log", environment=buses, cwd=ROOT)


@dataclass
class SenderProcess:
    """The sender: slow at first. `is_wanted` is False while it is dead on purpose."""

    cloud: CloudProcess
    options: ChaosOptions
    files: RunFiles
    is_slow: bool = True
    is_wanted: bool = True

    def __post_init__(self) -> None:
        self._starts = count(1)
        self.start()

    def start(self) -> None:
        """Start it, or start it again: then it goes on from its ledger."""
        command = [sys.executable, "-m", "proof.chaos.sender"]
        command += [str(self.files.workload), str(self.files.ledger), f"{self.options.rate:g}"]
        command += [self.cloud.control.url, self.cloud.queue, *(["slow"] if self.is_slow else [])]
        self.child = Child(
            command,
            log=self.files.logs / f"sender-{next(self._starts)}.log",
            environment=app_settings(self.cloud),
            cwd=ROOT,
            grace_seconds=GRACE_SECONDS,
        )
        self.is_wanted = True

    def send_at_full_rate(self) -> None:
        """Send as fast as the options say from now on, also after a kill."""
        self.is_slow = False
        os.kill(self.child.pid, FULL_RATE_SIGNAL)

    def kill(self) -> None:
        self.is_wanted = False
        self.child.kill()
        self.child.stop()

    def is_finished(self) -> bool:
        """Return whether everything is sent; raises ChildFailed when it ended badly by itself."""
        child = self.child
        if not self.is_wanted or child.is_running:
            return False
        if child.stop():
            raise child.failure("the sender failed")
        return True

    def stop(self) -> None:
        """Let it end what it has begun; raises ChildFailed when it cannot.

        One that has just been started again may not have come to listen for the signal, which then
        ends it before it has begun anything.
        """
        if self.child.stop() not in (0, -signal.SIGTERM):
            raise self.child.failure("the sender did not end well")

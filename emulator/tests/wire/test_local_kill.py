"""The whole cloud is killed in mid-load, again and again: what it acknowledged is kept whole."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from local.testing.cloud import CloudProcess, running_cloud
from local.testing.patience import until
from wire.deeds import JOURNAL, KINDS, LATER, SESSIONS, STOCK, Clients
from wire.deeds_process import name_of
from wire.service_bus import hurried_client

pytestmark = pytest.mark.wire
ROUNDS = 3
DEEDS_MIN = 50  # of each kind, acknowledged before the kill
LOAD_SECONDS_MAX = 120.0
CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "east",
                "Queues": [
                    {"Name": SESSIONS, "Properties": {"RequiresSession": True}},
                    {"Name": LATER},
                ],
            }
        ]
    },
    "Cosmos": {
        "Database": "lockstep",
        "Containers": [{"Name": JOURNAL, "PartitionKey": "/session"}],
    },
}


@pytest.mark.proof
def test_what_was_acknowledged_is_there_after_each_of_several_kills(tmp_path: Path) -> None:
    (tmp_path / "local.config.json").write_text(json.dumps(CONFIG))
    options = ["--no-hosts", "--app", str(tmp_path), "--data", str(tmp_path / "data")]
    acknowledged = tmp_path / "acknowledged"
    acknowledged.mkdir()

    for round_name in map(str, range(ROUNDS)):
        with running_cloud(*options) as served:
            assert differences(served, acknowledged) == {}
            with load(served, round_name, acknowledged) as clients:
                wait_for_deeds(round_name, acknowledged)
                served.kill()
                clients.kill()
        settled = done(acknowledged)[f"settlements-{round_name}"]
        assert settled < STOCK, "the kill came too late to be in mid-load"

    with running_cloud(*options) as served:
        assert differences(served, acknowledged) == {}
        assert len(done(acknowledged)) == ROUNDS * len(KINDS)


@contextmanager
def load(
    served: CloudProcess, round_name: str, acknowledged: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Clients at work in a process of their own, gone at the end."""
    module, contract = "wire.deeds_process", json.dumps(served.contract)
    command = [sys.executable, "-m", module, contract, round_name, str(acknowledged)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1]) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_deeds(round_name: str, acknowledged: Path) -> None:
    """Return when some of each kind were acknowledged."""
    names = [name_of(kind, round_name) for kind in KINDS]

    def are_enough() -> bool:
        return all(done(acknowledged).get(name, 0) >= DEEDS_MIN for name in names)

    until(are_enough, seconds=LOAD_SECONDS_MAX, what=f"{DEEDS_MIN} deeds of each kind")


def done(acknowledged: Path) -> dict[str, int]:
    """How many deeds of each name were acknowledged."""
    return {path.name: path.stat().st_size for path in acknowledged.iterdir()}


def differences(served: CloudProcess, acknowledged: Path) -> dict[str, tuple[object, int]]:
    """What is found of the deeds of all rounds, where it is not what they must leave behind."""
    kinds = {kind.__name__.lower(): kind for kind in KINDS}
    wrong: dict[str, tuple[object, int]] = {}
    for name, count in done(acknowledged).items():
        with hurried_client(), Clients(dict(served.contract)) as clients:
            deed = kinds[name.partition("-")[0]](clients, name)
            found = deed.found()
            # The answer to the last may have been cut off.
            if found not in (deed.expected(count), deed.expected(count + 1)):
                wrong[name] = (found, count)
    return wrong

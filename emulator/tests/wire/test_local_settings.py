"""`python -m local settings REGION`: what the real Functions host needs of a cloud served here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.functions_host.config.settings import AppSettings
from local.testing.cloud import reserve_ports, running_cloud
from local.testing.patience import run_patiently
from wire.sample_cloud import CONFIG, write_app

EMULATOR = Path(__file__).parents[2]
pytestmark = pytest.mark.wire


def print_settings(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "local", "settings", *words]
    return run_patiently(command, seconds=60, cwd=EMULATOR)


def test_the_printed_file_leads_to_a_cloud_on_the_same_ports(tmp_path: Path) -> None:
    app = write_app(tmp_path)
    with (
        reserve_ports() as base,
        running_cloud("--no-hosts", "--app", str(app), "--port-base", str(base)),
    ):
        shared = ("--port-base", str(base), "--app", str(app))

        printed = print_settings("west", *shared, "--setting", "EXTRA=from the command line")

        assert printed.returncode == 0, printed.stderr
        (app / "local.settings.json").write_text(printed.stdout)
        values = AppSettings.load(app, {}).values
        assert values["REGION"] == "west"
        assert values["EXTRA"] == "from the command line"
        with ServiceBusClient.from_connection_string(values["BUS"]) as bus:
            with bus.get_queue_sender("work") as sender:
                sender.send_messages(ServiceBusMessage("here", session_id="s"))
            with bus.get_queue_receiver("work", session_id="s") as receiver:
                assert [str(one) for one in receiver.receive_messages()] == ["here"]
        store = CosmosClient.from_connection_string(values["STORE"])
        assert [one["id"] for one in store.list_databases()] == ["lockstep"]


def test_two_regions_on_one_storage_account_share_neither_locks_nor_task_hub(
    tmp_path: Path,
) -> None:
    app = write_app(tmp_path)
    hosts = CONFIG["Hosts"] | {"Values": {"HUB": "{durable}", "OTHER": "{durable.west}"}}
    (app / "local.config.json").write_text(json.dumps(CONFIG | {"Hosts": hosts}))

    east, west = (
        json.loads(print_settings(region, "--port-base", "9000", "--app", str(app)).stdout)
        for region in ("east", "west")
    )

    # The addresses of the task hubs here say nothing to a host that has its own in a storage.
    assert east["IsEncrypted"] is False
    assert east["Values"] == {
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "AzureWebJobsStorage": "UseDevelopmentStorage=true",
        "AzureFunctionsWebHost__hostid": "localeast",
        "AzureFunctionsJobHost__extensions__durableTask__hubName": "localeast",
    }
    assert west["Values"]["AzureFunctionsWebHost__hostid"] == "localwest"
    assert west["Values"]["AzureFunctionsJobHost__extensions__durableTask__hubName"] == "localwest"


def test_a_region_without_a_host_is_refused_by_name(tmp_path: Path) -> None:
    refused = print_settings("north", "--port-base", "9000", "--app", str(write_app(tmp_path)))

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "north is not a region of Hosts, only east, west" in refused.stderr

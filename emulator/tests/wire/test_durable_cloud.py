"""The task hubs as a part of the local cloud: one per region, each by itself."""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import TaskHubGrpcClient

from local.cloud import Cloud, CloudOptions
from local.config import parse_config
from local.faults import Action, Fault
from local.testing.cloud import reserve_ports
from local.testing.patience import eventually
from wire.durable_by_hand import output_of, worker

pytestmark = pytest.mark.wire

APP = Path(__file__).parent / "durable_app"
ADDRESS = "LOCAL_DURABLE_ADDRESS"


def cloud_of(regions: Sequence[str], address: str, options: CloudOptions) -> Cloud:
    """A cloud with hosts in these regions, if it has an app, that get this address."""
    config = {
        "UserConfig": {"Namespaces": []},
        "Cosmos": {"Database": "sample", "Containers": []},
        "Hosts": {"Regions": regions, "Values": {ADDRESS: address}},
    }
    return Cloud(parse_config(config), options)


@contextmanager
def clients_of(cloud: Cloud) -> Iterator[dict[str, TaskHubGrpcClient]]:
    """A client of each region's hub."""
    east, west = (
        TaskHubGrpcClient(host_address=cloud.durable[name].address) for name in ("east", "west")
    )
    with east, west:
        yield {"east": east, "west": west}


def ask(url: str, body: bytes | None = None) -> Any:
    """One request, a POST if it has a body."""
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=30) as answer:
        return json.loads(answer.read())


def test_a_host_works_on_the_hub_of_its_region(tmp_path: Path) -> None:
    options = CloudOptions(logs=tmp_path, app=APP)
    with cloud_of(["east", "west"], "{durable}", options) as cloud:
        hubs = {region: hub.address for region, hub in cloud.durable.items()}
        assert cloud.describe()["durable"] == hubs
        assert len({*hubs.values()}) == 2
        for region in ("east", "west"):
            links = ask(
                f"{cloud.hosts.urls[region]}/api/start/chain?id=one", b'"%s-"' % region[:1].encode()
            )
            found = eventually(partial(over, links["statusQueryGetUri"]))
            assert found["output"] == f"{region[:1]}-abc"

        counted = cloud.counters.snapshot()
        assert {
            counted[f"durable.{region}"]["start-instance"]["ok"]["count"] for region in hubs
        } == {1}


def over(url: str) -> Any:
    """The state of an instance once it is completed."""
    found = ask(url)
    return found if found["runtimeStatus"] == "Completed" else None


def test_a_region_that_dies_takes_its_hub_along_and_brings_back_what_was_in_it(
    tmp_path: Path,
) -> None:
    with (
        cloud_of(["east", "west"], "{durable}", CloudOptions(logs=tmp_path)) as cloud,
        clients_of(cloud) as clients,
    ):
        clients["east"].schedule_new_orchestration("saga", instance_id="one")
        assert clients["west"].get_orchestration_state("one") is None

        fault = cloud.faults.arm(Fault("durable.east", Action.DOWN))
        assert refused(clients["east"]) is grpc.StatusCode.UNAVAILABLE
        clients["west"].schedule_new_orchestration("saga", instance_id="one")
        both = cloud.faults.arm(Fault("durable", Action.DOWN))
        assert refused(clients["west"]) is grpc.StatusCode.UNAVAILABLE
        cloud.faults.disarm(both)
        cloud.faults.disarm(fault)

        for region, client in clients.items():
            with worker(cloud.durable[region]) as only:
                only.finish(only.next(), f"done in {region}")
                assert output_of(client, "one") == f"done in {region}"


def refused(client: TaskHubGrpcClient) -> grpc.StatusCode:
    """With which status a question is refused."""
    with pytest.raises(grpc.RpcError) as refusal:
        client.get_orchestration_state("one")
    return refusal.value.code()


def test_regions_may_share_the_hub_of_one_of_them(tmp_path: Path) -> None:
    options = CloudOptions(logs=tmp_path)
    with cloud_of(["east", "west"], "{durable.west}", options) as cloud:
        assert cloud.describe()["durable"] == {"west": cloud.durable["west"].address}


def test_with_a_port_base_each_region_has_a_port_for_its_hub(tmp_path: Path) -> None:
    with (
        reserve_ports() as base,
        cloud_of(["east", "west"], "{durable}", CloudOptions(tmp_path, port_base=base)) as cloud,
    ):
        assert cloud.describe()["durable"] == {
            "east": f"127.0.0.1:{base + 4}",
            "west": f"127.0.0.1:{base + 5}",
        }


def test_a_cloud_whose_hosts_need_no_hub_has_none(tmp_path: Path) -> None:
    with cloud_of(["east"], "nowhere", CloudOptions(logs=tmp_path)) as cloud:
        assert cloud.durable == {}
        assert "durable" not in cloud.describe()

"""The Durable backend as a part of the local cloud."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from local.cloud import Cloud, CloudOptions
from local.config import parse_config

pytestmark = pytest.mark.wire

APP = Path(__file__).parent / "durable_app"
SECONDS_MAX = 10.0


def cloud_with(values: dict[str, str], tmp_path: Path) -> Cloud:
    """A cloud of one host that runs the Durable app."""
    config = {
        "UserConfig": {"Namespaces": []},
        "Cosmos": {"Database": "sample", "Containers": []},
        "Hosts": {"Regions": ["east"], "Values": values},
    }
    return Cloud(parse_config(config), CloudOptions(logs=tmp_path, app=APP))


def ask(url: str, body: bytes | None = None) -> Any:
    """One request, a POST if it has a body."""
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=10) as answer:
        return json.loads(answer.read())


def test_a_host_is_told_of_the_backend_by_a_placeholder(tmp_path: Path) -> None:
    with cloud_with({"LOCAL_DURABLE_ADDRESS": "{durable}"}, tmp_path) as cloud:
        assert cloud.durable is not None
        assert cloud.describe()["durable"] == cloud.durable.address
        links = ask(f"{cloud.hosts.urls['east']}/api/start/chain", b'"x-"')
        deadline = time.monotonic() + SECONDS_MAX
        while (found := ask(links["statusQueryGetUri"]))["runtimeStatus"] != "Completed":
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

        assert found["output"] == "x-abc"


def test_a_cloud_whose_hosts_need_no_backend_has_none(tmp_path: Path) -> None:
    config = parse_config(
        {"UserConfig": {}, "Cosmos": {"Database": "sample", "Containers": []}, "Hosts": {}}
    )
    with Cloud(config, CloudOptions(logs=tmp_path)) as cloud:
        assert cloud.durable is None
        assert "durable" not in cloud.describe()

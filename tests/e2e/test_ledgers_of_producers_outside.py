"""A producer outside keeps its ledger apart, and the apps deliver what it could not."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.cloud import app_settings
from cli.regions import CONFIG
from local.testing.answers import KEY, request
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from shared.domain.producer import Draft, ProducerOptions
from shared.settings import Settings
from shared.wiring import open_producer
from tests.docs.pages import ROOT

pytestmark = pytest.mark.e2e

OWN = {"LOCKSTEP_LEDGERS": "ledgers"}


async def test_what_a_region_misses_comes_from_the_ledgers_and_the_journal_holds_none(
    tmp_path: Path,
) -> None:
    config = json.loads(CONFIG.read_text())
    (journal,) = [c for c in config["Cosmos"]["Containers"] if c["Name"] == "journal"]
    config["Cosmos"]["Containers"].append({**journal, "Name": "ledgers"})
    path = tmp_path / CONFIG.name
    path.write_text(json.dumps(config))
    settings = {**OWN, "LOCKSTEP_SWEEP_SCHEDULE": "*/2 * * * * *"}

    with running_cloud("--config", str(path), "--app", str(ROOT), settings=settings) as cloud:
        down = cloud.control.arm({"component": "servicebus.west", "action": "down"})
        async with open_producer(Settings.read(app_settings(cloud) | OWN)) as producer:
            draft = Draft("m-1", "range.move", b'{"position":5}')
            published = await producer.publish("acc-7", [draft], ProducerOptions("bank"))
        cloud.control.clear(down)

        def kinds(container: str) -> list[str]:
            with cloud.open_container(container) as opened:
                found = list(opened.read_all_items())
            return sorted(f"{d['kind']}{' for west' if d.get('pending') else ''}" for d in found)

        def heard() -> dict[str, Any]:
            url = f"{cloud.contract['hosts']['west']}/api/status"
            answer: dict[str, Any] = json.loads(request(url, headers=KEY).body)["heartbeats"]
            return answer

        assert published.regions == ("east",)
        assert "pending for west" in kinds("ledgers")
        until(lambda: "pending for west" not in kinds("ledgers"), what="the copy for the west")
        until(lambda: "entry" in kinds("journal"), what="the entry of an app")
        assert "ledger" in kinds("ledgers")
        # The feed of that container is followed, and is not the journal's.
        until(lambda: heard()["recover_ledgers"]["secondsAgo"] is not None, what="its feed")
        producers = ("ledger", "pending", "pending for west")
        assert not [kind for kind in kinds("journal") if kind in producers]

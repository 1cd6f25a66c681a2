"""The program of docs/publishing.md publishes to a topic of each region, and hosts process it."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from cli.regions import CONFIG
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from tests.docs.pages import ROOT, page
from tests.e2e.stack import GROUP, Stack, status

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

EACH = 6


def documented_publish() -> Callable[..., None]:
    """`publish_event`, as the page has it."""
    (block,) = [one for one in page("docs/publishing.md").blocks if "publish_event" in one.text]
    program: dict[str, Callable[..., None]] = {}
    exec(compile(block.text, "docs/publishing.md", "exec"), program)
    return program["publish_event"]


def test_what_is_published_to_a_topic_of_each_region_is_processed_once_and_in_order(
    tmp_path: Path,
) -> None:
    config = json.loads(CONFIG.read_text())
    feed = {"Name": "lockstep", "Properties": {"ForwardTo": "lockstep"}}
    for namespace in config["UserConfig"]["Namespaces"]:
        namespace["Topics"] = [{"Name": "flights", "Subscriptions": [feed]}]
    path = tmp_path / CONFIG.name
    path.write_text(json.dumps(config))
    publish = documented_publish()

    settings = {"LOCKSTEP_INPUT_TOPICS": "flights"}
    with (
        running_cloud("--config", str(path), "--app", str(ROOT), settings=settings) as cloud,
        ExitStack() as opened,
    ):
        stack = Stack(cloud)
        regions = [
            opened.enter_context(ServiceBusClient.from_connection_string(one))
            for one in cloud.contract["servicebus"].values()
        ]
        sent = {session: [status(session, n) for n in range(EACH)] for session in ("N1", "N2")}
        for n in range(EACH):
            for session, own in sent.items():
                one = own[n]
                number = {"producergroup": GROUP, "ownerlevel": "0", "producersequence": str(n)}
                event = {"id": one.id, "type": one.type, **number}
                publish(regions, "flights", session, one.body.decode(), event)
        until(lambda: stack.left_in_queues() == 0, what="both regions' queues to be empty")

        for session, own in sent.items():
            processed = [
                known["id"] for entry in stack.entries()[session] for known in entry["identities"]
            ]
            assert processed == [message.id for message in own]
        for region in ("east", "west"):
            depth = cloud.control.read_depths()[region]["flights/Subscriptions/lockstep"]
            assert sum(depth.values()) == 0

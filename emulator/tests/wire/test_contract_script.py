"""A stranger's script: the JSON line of `serve` and the two SDKs, nothing of ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosAccessConditionFailedError, CosmosBatchOperationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.testing.cloud import running_cloud

pytestmark = pytest.mark.wire

CONFIG = Path(__file__).parents[2] / "local.config.json"


@pytest.fixture(scope="module")
def contract() -> Iterator[dict[str, Any]]:
    with running_cloud("--no-hosts", "--config", str(CONFIG)) as served:
        yield dict(served.contract)


@pytest.fixture
def journal(contract: dict[str, Any]) -> Iterator[ContainerProxy]:
    cosmos = contract["cosmos"]
    with CosmosClient(cosmos["endpoint"], cosmos["key"]) as client:
        database = client.get_database_client(cosmos["database"])
        yield database.get_container_client(contract["containers"]["journal"])


@pytest.mark.parametrize("region", ["east", "west"])
def test_a_session_is_received_in_order_and_completed(
    contract: dict[str, Any], region: str
) -> None:
    bodies = [f"N725MQ event {number}" for number in range(5)]
    with ServiceBusClient.from_connection_string(contract["servicebus"][region]) as client:
        with client.get_queue_sender(contract["queue"]) as sender:
            sender.send_messages([ServiceBusMessage(b, session_id="N725MQ") for b in bodies])

        received: list[str] = []
        with client.get_queue_receiver(contract["queue"], session_id="N725MQ") as receiver:
            while len(received) < len(bodies):
                messages = receiver.receive_messages(max_message_count=5, max_wait_time=60)
                assert messages, f"only {received} arrived"
                for message in messages:
                    received.append(str(message))
                    receiver.complete_message(message)
            assert receiver.receive_messages(max_message_count=1, max_wait_time=0.5) == []

    assert received == bodies


def test_a_create_and_a_replace_under_the_right_and_a_stale_tag(journal: ContainerProxy) -> None:
    created = journal.create_item({"id": "000", "session": "N725MQ", "legs": 1})
    unchanged = {"etag": created["_etag"], "match_condition": MatchConditions.IfNotModified}
    journal.replace_item("000", {"id": "000", "session": "N725MQ", "legs": 2}, **unchanged)

    with pytest.raises(CosmosAccessConditionFailedError) as refusal:
        journal.replace_item("000", {"id": "000", "session": "N725MQ", "legs": 3}, **unchanged)

    assert refusal.value.status_code == 412
    assert journal.read_item("000", "N725MQ")["legs"] == 2


def test_a_batch_with_one_failing_operation_applies_nothing(journal: ContainerProxy) -> None:
    journal.create_item({"id": "000", "session": "N14228"})

    with pytest.raises(CosmosBatchOperationError) as failure:
        journal.execute_item_batch(
            [
                ("create", ({"id": "001", "session": "N14228"},)),
                ("create", ({"id": "000", "session": "N14228"},)),
                ("upsert", ({"id": "002", "session": "N14228"},)),
            ],
            partition_key="N14228",
        )

    codes = [one["statusCode"] for one in failure.value.operation_responses]
    assert codes == [424, 409, 424]
    stored = journal.query_items("SELECT VALUE c.id FROM c", partition_key="N14228")
    assert [str(one) for one in stored] == ["000"]

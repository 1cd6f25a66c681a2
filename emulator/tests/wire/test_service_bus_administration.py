"""Entities and rules that clients make over the management API, with the SDK's own client."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from local.testing.patience import eventually
from local.testing.raw_amqp import sign
from wire.service_bus import Bus, receive_one, running_bus

pytestmark = pytest.mark.wire


class PlainHttp(RequestsTransport):  # type: ignore[misc]
    """azure-servicebus asks over TLS only, even when it is told that this is an emulator."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


@contextmanager
def administration(bus: Bus) -> Iterator[ServiceBusAdministrationClient]:
    text = bus.namespace.connection_string
    with ServiceBusAdministrationClient.from_connection_string(
        text, transport=PlainHttp()
    ) as client:
        yield client


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


@pytest.fixture
def admin(bus: Bus) -> Iterator[ServiceBusAdministrationClient]:
    with administration(bus) as client:
        yield client


def test_a_queue_made_by_a_client_carries_messages_as_it_was_declared(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    made = admin.create_queue(
        "orders",
        requires_session=True,
        lock_duration=timedelta(seconds=7),
        max_delivery_count=2,
        default_message_time_to_live="PT1H",
        dead_lettering_on_message_expiration=True,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=2),
    )
    bus.send("orders", "a", session="s")
    with bus.receiver("orders", "s") as receiver:
        message = receive_one(receiver)
        assert str(message) == "a"
        receiver.complete_message(message)
    found = admin.get_queue("Orders")

    assert found.requires_session
    assert found.requires_duplicate_detection
    assert found.dead_lettering_on_message_expiration
    assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=7), 2)
    assert found.duplicate_detection_history_time_window == timedelta(minutes=2)
    assert made.default_message_time_to_live == found.default_message_time_to_live
    assert found.default_message_time_to_live == timedelta(hours=1)
    assert found.availability_status == "Available"
    with pytest.raises(ResourceExistsError, match="already"):
        admin.create_queue("orders")


def test_a_topic_with_subscriptions_and_rules_made_by_a_client_spreads_messages(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    admin.create_topic("events")
    for name in ("all", "late"):
        admin.create_subscription("events", name, lock_duration=timedelta(seconds=30))
    admin.delete_rule("events", "late", "$Default")
    rule = CorrelationRuleFilter(label="departed", properties={"late": True, "gate": 7, "by": "x"})
    admin.create_rule("events", "late", "departures", filter=rule)
    with bus.client.get_topic_sender("events") as sender:
        properties: dict[str | bytes, Any] = {"late": True, "gate": 7, "by": "x"}
        sender.send_messages(
            [
                ServiceBusMessage("hit", subject="departed", application_properties=properties),
                ServiceBusMessage("miss", subject="departed"),
            ]
        )

    assert bus.namespace.depth("events/Subscriptions/all")["active"] == 2
    with bus.client.get_subscription_receiver("events", "late") as receiver:
        assert str(receive_one(receiver)) == "hit"
    counts = admin.get_subscription_runtime_properties("events", "late")
    assert (counts.active_message_count, counts.total_message_count) == (1, 1)
    assert admin.get_topic_runtime_properties("events").subscription_count == 2
    [kept] = admin.list_rules("events", "late")
    assert kept.name == "departures"
    assert isinstance(kept.filter, CorrelationRuleFilter)
    assert kept.filter.label == "departed"
    assert kept.filter.properties == {"late": True, "gate": 7, "by": "x"}


def test_the_size_of_an_entity_is_that_of_its_messages_and_session_states(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    def size(queue: str) -> int:
        return admin.get_queue_runtime_properties(queue).size_in_bytes or 0

    def topic_size() -> int:
        return admin.get_topic_runtime_properties("news").size_in_bytes or 0

    assert (size("flights"), size("parcels"), topic_size()) == (0, 0, 0)
    bus.send("parcels", "x" * 1000)
    alone = size("parcels")
    bus.send("parcels", "x" * 1000)
    bus.send("flights", "x" * 1000, session="N101")
    with bus.receiver("flights", "N101") as receiver:
        receiver.complete_message(receive_one(receiver))
        receiver.session.set_state(b"gate 7")
    with bus.receiver("parcels") as receiver:
        receiver.dead_letter_message(receive_one(receiver))  # it counts there, too
    with bus.client.get_topic_sender("news") as sender:
        sender.send_messages(ServiceBusMessage("x" * 1000, session_id="N101"))

    assert 1000 < alone < 1200
    assert (size("parcels"), size("flights")) == (2 * alone, len(b"gate 7"))
    assert 2000 < topic_size() < 2400, "a copy in each subscription that takes it"


def test_the_filters_of_a_topic_are_counted_by_their_kind(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    """In what api-version 2024-05 tells; a rule that takes all is one in SQL."""
    admin.create_rule("news", "everything", "none", filter=FalseRuleFilter())
    connection = HTTPConnection(bus.namespace.host, bus.namespace.port, timeout=60)
    token = sign(f"http://{bus.namespace.host}/news")
    connection.request("GET", "/news?api-version=2024-05", headers={"Authorization": token})
    told = connection.getresponse().read().decode()
    connection.close()

    assert dict(re.findall(r"<sb:(\w+FilterCount)>(\d+)<", told)) == {
        "SqlFilterCount": "3",
        "CorrelationFilterCount": "1",
    }


def test_everything_can_be_listed_page_by_page(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    declared = [queue.name for queue in bus.namespace.config.queues]
    made = [f"q{number:03}" for number in range(120)]
    for name in made:
        admin.create_queue(name)

    assert [queue.name for queue in admin.list_queues()] == [*declared, *made]
    assert [topic.name for topic in admin.list_topics()] == ["news"]
    names = [one.name for one in admin.list_subscriptions("news")]
    assert names == ["everything", "departures", "by-flight"]
    assert admin.get_namespace_properties().name == "east"


def test_an_update_changes_what_may_change_and_refuses_the_rest(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    queue = admin.get_queue("parcels")
    queue.max_delivery_count, queue.lock_duration = 1, timedelta(seconds=9)
    admin.update_queue(queue)
    bus.send("parcels", "once")
    with bus.receiver("parcels") as receiver:
        receiver.abandon_message(receive_one(receiver))

    assert admin.get_queue("parcels").lock_duration == timedelta(seconds=9)
    assert bus.namespace.depth("parcels")["dead_lettered"] == 1
    queue.requires_session = True
    with pytest.raises(HttpResponseError, match="stay as they are"):
        admin.update_queue(queue)
    [rule] = admin.list_rules("news", "everything")
    rule.filter = FalseRuleFilter()
    admin.update_rule("news", "everything", rule)
    assert isinstance(admin.get_rule("news", "everything", "$Default").filter, FalseRuleFilter)


def test_a_change_of_what_has_no_name_is_refused(admin: ServiceBusAdministrationClient) -> None:
    """Its address is that of the list."""
    subscription = admin.get_subscription("news", "everything")
    subscription.name = ""
    changed = admin.get_rule("news", "everything", "$Default")
    changed.name = ""

    with pytest.raises(HttpResponseError, match="A list takes no PUT"):
        admin.update_subscription("news", subscription)
    with pytest.raises(HttpResponseError, match="A list takes no PUT"):
        admin.update_rule("news", "everything", changed)


def test_what_is_removed_takes_its_messages_along_and_loses_its_links(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    bus.send("parcels", "old")
    with bus.client.get_queue_sender("parcels") as attached:
        admin.delete_queue("parcels")
        with pytest.raises(ServiceBusError):  # its link is gone
            attached.send_messages(ServiceBusMessage("late"), timeout=20)
        with pytest.raises(ServiceBusAuthenticationError):  # none is given for what is not there
            attached.send_messages(ServiceBusMessage("later"), timeout=20)
    admin.delete_topic("news")

    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("parcels")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_subscription("news", "everything")
    admin.create_queue("parcels")
    assert bus.namespace.depth("parcels")["active"] == 0
    assert "news" not in bus.namespace.entities()


def test_what_clients_made_and_removed_is_so_after_a_restart(tmp_path: Path) -> None:
    with running_bus(tmp_path) as bus, administration(bus) as admin:
        bus.send("short", "old", "older")
        admin.delete_queue("short")
        admin.create_queue("short", max_delivery_count=4)
        bus.send("short", "new")
        admin.delete_queue("parcels")
        admin.create_topic("events")
        admin.create_subscription("events", "all", requires_session=True)
        admin.delete_rule("events", "all", "$Default")
        admin.create_rule("events", "all", "every", filter=TrueRuleFilter())

    with running_bus(tmp_path) as bus, administration(bus) as admin:
        assert admin.get_queue("short").max_delivery_count == 4
        with bus.receiver("short") as receiver:
            message = receive_one(receiver)
            assert (str(message), message.sequence_number) == ("new", 1)
        with pytest.raises(ResourceNotFoundError):
            admin.get_queue("parcels")
        assert admin.get_subscription("events", "all").requires_session
        assert [rule.name for rule in admin.list_rules("events", "all")] == ["every"]


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"forward_dead_lettered_messages_to": "short"}, "ForwardDeadLetteredMessagesTo"),
        ({"auto_delete_on_idle": timedelta(minutes=5)}, "AutoDeleteOnIdle"),
        ({"enable_partitioning": True}, "EnablePartitioning"),
        ({"user_metadata": "mine"}, "UserMetadata"),
        ({"lock_duration": timedelta(minutes=6)}, "LockDuration"),
        # Out of bounds, though this queue would not look for duplicates.
        ({"duplicate_detection_history_time_window": timedelta(days=25)}, "HistoryTimeWindow"),
        ({"authorization_rules": [AuthorizationRule(key_name="k")]}, "AuthorizationRules"),
    ],
)
def test_what_is_not_honoured_of_an_entity_is_refused_by_name(
    bus: Bus, admin: ServiceBusAdministrationClient, wanted: dict[str, Any], named: str
) -> None:
    with pytest.raises(HttpResponseError, match=named):
        admin.create_queue("orders", **wanted)

    assert "orders" not in bus.namespace.entities()


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"filter": SqlRuleFilter("a > 1")}, re.escape("a > 1")),
        ({"filter": TrueRuleFilter(), "action": SqlRuleAction("SET a = 1")}, "rule actions"),
        (
            {"filter": CorrelationRuleFilter(properties={"t": timedelta(1)})},
            "of type duration",
        ),
    ],
)
def test_what_is_not_honoured_of_a_rule_is_refused_by_name(
    admin: ServiceBusAdministrationClient, rule: dict[str, Any], named: str
) -> None:
    with pytest.raises(HttpResponseError, match=named):
        admin.create_rule("news", "everything", "new", **rule)

    assert [one.name for one in admin.list_rules("news", "everything")] == ["$Default"]


def test_a_wrong_key_is_refused(bus: Bus) -> None:
    text = bus.namespace.connection_string.replace("SAS_KEY_VALUE", "mine")
    with (
        ServiceBusAdministrationClient.from_connection_string(
            text, transport=PlainHttp()
        ) as client,
        pytest.raises(ClientAuthenticationError),
    ):
        client.create_queue("orders")


def test_who_speaks_tls_hears_at_once_that_nobody_here_does(bus: Bus) -> None:
    with (
        ServiceBusAdministrationClient.from_connection_string(
            bus.namespace.connection_string, retry_total=0
        ) as client,
        pytest.raises(ServiceRequestError, match=r"(?i)wrong[_ ]version"),
    ):
        client.get_queue("parcels")


def test_management_is_counted_and_ends_with_its_namespace(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    admin.get_queue("parcels")
    assert eventually(lambda: bus.count("administer", "200") == 1)

    bus.namespace.stop()

    with pytest.raises(ServiceRequestError):
        admin.get_queue("parcels", retry_total=0)

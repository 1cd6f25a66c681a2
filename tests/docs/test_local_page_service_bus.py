"""docs/local.md on what Service Bus honours is what the code says, and the other way round."""

import json
import re
from inspect import getsource

from local.servicebus import config as entities
from local.servicebus.amqp.errors import (
    CONDITION_OF_STATUS,
    STATUS_BAD_REQUEST,
    STATUS_OF_CONDITION,
    ErrorCondition,
    error_for_status,
)
from local.servicebus.broker import OPERATIONS
from local.servicebus.message import Settlement
from local.servicebus.nodes.management import ManagementNode
from tests.docs.local_page import (
    cells,
    coded,
    modules,
    names,
    paragraph,
    quoted,
    rows,
)


def test_every_property_of_an_entity_with_its_default() -> None:
    defaults = {
        "queue": entities.QUEUE_DEFAULTS,
        "topic": entities.TOPIC_DEFAULTS,
        "subscription": entities.SUBSCRIPTION_DEFAULTS,
    }
    kinds = {name: set(cell.split(", ")) for name, cell in cells("Service Bus", "property").items()}
    written = cells("Service Bus", "property", 2)

    assert set(kinds) == {name for known in defaults.values() for name in known}
    for name, of in kinds.items():
        known = {kind: of_kind[name] for kind, of_kind in defaults.items() if name in of_kind}
        assert of == set(known), name
        assert {f"`{json.dumps(value)}`" for value in known.values()} == {written[name]}


def test_every_filter() -> None:
    kinds = quoted(r"case (\".*\")", entities.parse_filter)

    documented = coded(paragraph("Service Bus", "A subscription without rules"))
    assert set(documented) == kinds | entities.CORRELATION_PROPERTIES


def test_every_operation_and_management_request() -> None:
    requested = dict(
        re.findall(r'"([a-z-]+)": ManagementOperation\(\s*"([a-z-]+)"', getsource(ManagementNode))
    )
    counts = r'(?:Operation|\.count)\(\s*"([a-z-]+)"'
    counted = {*re.findall(counts, modules("local/servicebus"))}

    documented = {
        request: operation
        for operations, words in rows("Service Bus", "operation")
        for request, operation in zip(coded(words), coded(operations), strict=False)
    }
    assert documented.pop("update-disposition") in {kind.value for kind in Settlement}
    assert documented == requested
    assert names("Service Bus", "operation") == counted | {kind.value for kind in Settlement}
    assert names("Service Bus", "operation") == set(OPERATIONS)


def test_every_error_and_what_arms_it() -> None:
    table = rows("Service Bus", "in `$management`")
    documented = {name: int(code) for code, conditions, _ in table for name in coded(conditions)}
    armed = {
        int(status): coded(conditions)
        for _, conditions, statuses in table
        for status in re.findall(r"\d+", statuses)
        if "any other" not in statuses
    }

    assert documented == {
        one.value: STATUS_OF_CONDITION.get(one, STATUS_BAD_REQUEST) for one in ErrorCondition
    }
    assert set(armed) == set(CONDITION_OF_STATUS)
    for status, conditions in armed.items():
        assert error_for_status(status).condition in conditions

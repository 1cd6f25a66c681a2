"""A link by which a client receives is no link by which it sends."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from proton import Endpoint

from local.servicebus.links.outgoing import PlainOutgoingLink


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_transfer_that_a_client_sends_over_it_detaches_it_with_a_condition(
    *, is_settled: bool
) -> None:
    link = Mock(state=Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE)
    endpoint = PlainOutgoingLink(link, Mock(), Mock(), Mock())

    # What the broker delivers has a lock token.
    endpoint.on_delivery(SimpleNamespace(updated=is_settled))  # type: ignore[arg-type]

    assert link.condition.name == "amqp:not-allowed"
    link.close.assert_called_once_with()

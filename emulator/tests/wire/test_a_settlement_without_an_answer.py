"""A broker that applies a settlement and never answers must not hold a host's session for ever."""

import pytest

from local.faults import Action, Fault
from local.functions_host.clients import receivers
from local.functions_host.clients.amqp import ConnectionLost
from local.functions_host.clients.receivers import SessionReceiver
from local.functions_host.clients.service_bus import EntityClient, NamespaceAddress
from wire.service_bus import SECONDS_MAX, SESSIONS, running_bus

pytestmark = pytest.mark.wire


async def test_the_session_is_given_up_after_a_time_and_goes_on_with_the_next_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receivers, "RESPONSE_SECONDS", 1.0)
    with running_bus() as bus:
        bus.send(SESSIONS.name, "first", "second", session="UA1")
        address = NamespaceAddress.parse(bus.namespace.connection_string)
        entity = EntityClient(address, SESSIONS.name, prefetch=0)
        unanswered = Fault("servicebus.east", Action.DROP_ANSWER, "complete", times=1)
        bus.faults.arm(unanswered)

        session = await accepted(entity)
        first = await session.receive(SECONDS_MAX)
        assert first is not None
        with pytest.raises(ConnectionLost, match="no answer"):
            await session.complete([first])
        session.detach()

        session = await accepted(entity)
        second = await session.receive(SECONDS_MAX)
        assert second is not None
        assert b"second" in second.content
        await session.complete([second])
        assert bus.namespace.depth(SESSIONS.name)["active"] == 0
        await entity.close()


async def accepted(entity: EntityClient) -> SessionReceiver:
    """The next session that comes free."""
    session = await entity.accept_next_session(SECONDS_MAX)
    assert session is not None
    return session

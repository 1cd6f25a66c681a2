"""A broker that takes a message and never answers must not hold its sender for ever."""

from pathlib import Path

import pytest

from local.faults import Action, Fault
from shared.adapters.service_bus import ServiceBus
from shared.domain.errors import OutcomeUnknown
from shared.wiring import Adapters
from tests.cloud import running_cloud, settings_of
from tests.world import message

pytestmark = pytest.mark.wire


async def test_it_is_an_unknown_outcome_after_a_time_and_the_next_send_goes_through(
    tmp_path: Path,
) -> None:
    with running_cloud(tmp_path) as cloud:
        adapters = Adapters.of(settings_of(cloud))
        bus = ServiceBus(adapters.bus.namespaces, send_seconds_max=6.0)
        unanswered = Fault("servicebus.east", Action.DROP_ANSWER, "send", times=1)
        cloud.faults.arm(unanswered)

        with pytest.raises(OutcomeUnknown):
            await bus.send("east", "lockstep", [message(0)])
        await bus.send("east", "lockstep", [message(1)])

        assert cloud.depths()["east"]["lockstep"]["active"] == 2
        await bus.close()
        await adapters.account.close()

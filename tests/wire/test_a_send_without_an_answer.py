"""A broker that never answers must not hold for ever who sends to it, or looks into it."""

from pathlib import Path

import pytest

from local.faults import Action, Fault
from shared.adapters.service_bus import ServiceBus
from shared.domain.errors import OutcomeUnknown, Unavailable
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


async def test_who_only_looks_is_told_that_nothing_was_changed(tmp_path: Path) -> None:
    with running_cloud(tmp_path) as cloud:
        adapters = Adapters.of(settings_of(cloud))
        bus = ServiceBus(adapters.bus.namespaces, send_seconds_max=2.0)
        await bus.send("east", "lockstep-errors", [message(0)])
        cloud.faults.arm(Fault("servicebus.east", Action.SILENT))

        with pytest.raises(Unavailable, match="did not answer in time"):
            await bus.browse_sessions("east", "lockstep-errors", 0, 2)
        with pytest.raises(Unavailable, match="did not answer in time"):
            await bus.browse_session("east", "lockstep-errors", message(0).session, 0, 2)

        cloud.faults.disarm()
        (found,) = await bus.browse_sessions("east", "lockstep-errors", 0, 1)
        assert found.session == message(0).session
        await bus.close()
        await adapters.account.close()

"""What a service refuses or never answers has the class that it deserves, through the real SDKs."""

import pytest

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.adapters.service_bus import ServiceBus
from shared.domain.errors import LockstepError, Misconfigured, OutcomeUnknown, Unavailable
from shared.wiring import Adapters
from tests.cloud import opened_adapters
from tests.entries import step
from tests.world import message

pytestmark = pytest.mark.wire

SESSION = "acc-7"


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([(403, None)], Misconfigured),
        ([(503, None), (403, None)], OutcomeUnknown),
        ([(410, None)], Unavailable),
    ],
)
async def test_a_write_that_the_store_refuses(
    cloud: Cloud,
    adapters: Adapters,
    answers: list[tuple[int, int | None]],
    error: type[LockstepError],
) -> None:
    await adapters.journal.head(SESSION)
    for status, substatus in answers:
        refused = Fault(
            "cosmos", Action.STATUS, "batch", status=status, substatus=substatus, times=1
        )
        cloud.faults.arm(refused)

    with pytest.raises(error) as raised:
        await adapters.journal.append(step(None, SESSION))

    assert type(raised.value) is error


@pytest.mark.parametrize("setting", ["LOCKSTEP_JOURNAL", "LOCKSTEP_DATABASE"])
async def test_a_container_that_is_missing(cloud: Cloud, setting: str) -> None:
    async with opened_adapters(cloud, **{setting: "misspelt"}) as adapters:
        journal = adapters.journal
        for call in (
            journal.append(step(None, SESSION)),
            journal.entry(SESSION, 0),
            journal.head(SESSION),
        ):
            with pytest.raises(Misconfigured):
                await call


async def test_a_key_of_another_account(cloud: Cloud) -> None:
    endpoint = cloud.cosmos.connection_string.split(";")[0]
    connection = f"{endpoint};AccountKey=d3Jvbmc=;"
    async with opened_adapters(cloud, Cosmos=connection) as adapters:
        with pytest.raises(Misconfigured):
            await adapters.journal.head(SESSION)


async def test_a_queue_that_is_missing_and_a_key_of_another_namespace(cloud: Cloud) -> None:
    right = cloud.namespaces["east"].connection_string
    name, _, _ = right.partition("SharedAccessKey=")
    wrong = f"{name}SharedAccessKey=d3Jvbmc=;UseDevelopmentEmulator=true"
    async with opened_adapters(cloud, ServiceBus_west=wrong) as adapters:
        with pytest.raises(Misconfigured):
            await adapters.bus.send("east", "misspelt", [message(0)])
        with pytest.raises(Misconfigured):
            await adapters.bus.send("west", "lockstep", [message(0)])


async def test_a_send_without_an_answer_is_unknown_after_a_time_and_the_next_one_goes_through(
    cloud: Cloud, adapters: Adapters
) -> None:
    bus = ServiceBus(adapters.bus.namespaces, send_seconds_max=6.0)
    cloud.faults.arm(Fault("servicebus.east", Action.DROP_ANSWER, "send", times=1))

    with pytest.raises(OutcomeUnknown):
        await bus.send("east", "lockstep", [message(0)])
    await bus.send("east", "lockstep", [message(1)])

    assert cloud.depths()["east"]["lockstep"]["active"] == 2
    await bus.close()


async def test_who_only_looks_is_told_that_nothing_was_changed(
    cloud: Cloud, adapters: Adapters
) -> None:
    bus = ServiceBus(adapters.bus.namespaces, send_seconds_max=2.0)
    await bus.send("east", "lockstep-errors", [message(0)])
    cloud.faults.arm(Fault("servicebus.east", Action.SILENT))

    with pytest.raises(Unavailable, match="did not answer in time"):
        await bus.browse_sessions("east", "lockstep-errors", 2)
    with pytest.raises(Unavailable, match="did not answer in time"):
        await bus.browse_session("east", "lockstep-errors", message(0).session, 0, 2)

    cloud.faults.disarm()
    (found,) = (await adapters.bus.browse_sessions("east", "lockstep-errors", 2)).messages
    assert found.session == message(0).session
    await bus.close()

"""A setting names another queue than before: what is pending goes where the setting points now."""

from dataclasses import replace

import pytest

from shared.domain.outbox import ERRORS, HERE, OUTPUTS, address
from tests.world import LAG_SECONDS, QUEUES, REGIONS, World, message

RENAMED = replace(QUEUES, here="in-2", outputs="out-2", errors="errors-2")


@pytest.mark.parametrize(
    ("kind", "queue"), [("account.bill", "out-2"), ("account.burn", "errors-2")]
)
async def test_pending_outputs_and_faults_go_to_the_new_queue(kind: str, queue: str) -> None:
    world = World()
    world.bus.unavailable = set(REGIONS)
    await world.east.consumer.consume(message(0, kind=kind))
    world.bus.unavailable = set()

    for region in REGIONS:
        world.clock.seconds += LAG_SECONDS
        worker = world.worker(region)
        worker.recovery.dispatcher.delivery.queues = RENAMED
        await worker.recovery.sweep()

    assert [len(world.bus.messages(region, queue)) for region in REGIONS] == [1, 1]
    assert not world.journal.newest("acc-7").outbox.regions  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("stored", "sent_to"),
    [(OUTPUTS, "out-2"), (ERRORS, "errors-2"), (HERE, "in-2"), ("out", "out"), ("audit", "audit")],
)
async def test_only_what_was_stored_by_its_real_name_stays_there(stored: str, sent_to: str) -> None:
    world = World()
    dispatcher = world.east.recovery.dispatcher
    dispatcher.delivery.queues = RENAMED

    await dispatcher.delivery.deliver(address(stored, [message(0)], REGIONS))

    assert [len(world.bus.messages(region, sent_to)) for region in REGIONS] == [1, 1]

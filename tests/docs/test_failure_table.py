"""Every row of the table of failures in docs/guarantees.md is true."""

import pytest

from docs.site.failure_table import CONSEQUENCES
from functions.triggers.receive import pause_seconds, receive_message
from shared.domain.errors import LockstepError
from shared.domain.failures import (
    BUS,
    FAILURE_RULES,
    STORE,
    Failure,
    FailureClass,
    FailureRule,
    make_error,
)
from shared.testkit.injected_faults import CallFault, FaultPlan
from tests.deliveries import delivery_of
from tests.world import World, message

READS = frozenset({"head", "entry"})
STORE_RULES = [rule for rule in FAILURE_RULES if rule.service is STORE]
BUS_RULES = [rule for rule in FAILURE_RULES if rule.service is BUS]


class FailingOnce(FaultPlan):
    """The first call of these operations fails as a rule says."""

    def __init__(self, rule: FailureRule, *operations: str) -> None:
        super().__init__()
        self.rule = rule
        self.operations = set(operations)

    def next_fault(self, operation: str) -> CallFault | None:
        if operation in self.operations:
            self.operations.discard(operation)
            code = self.rule.codes[0] if self.rule.codes else None
            is_write = operation not in READS
            failure = Failure(self.rule.service, code, self.rule.sub_status, is_write)
            raise make_error(failure, "said the service")
        return super().next_fault(operation)


def test_every_consequence_is_of_some_rule() -> None:
    used = {(rule.service, rule.failure_class) for rule in FAILURE_RULES}

    assert used == set(CONSEQUENCES)


@pytest.mark.parametrize("rule", STORE_RULES, ids=lambda rule: rule.why)
async def test_what_a_failure_of_the_store_means_to_a_message(rule: FailureRule) -> None:
    world = World()
    operation = "head" if rule.is_write is False else "append"
    await world.west.consumer.consume(message(0))
    world.journal.fault_plan = FailingOnce(rule, operation)
    sent = message(1, kind="account.bill")

    match rule.failure_class:
        case FailureClass.ANSWER:
            # The engine's adapters make no error of it.
            with pytest.raises(ValueError, match="is an answer"):
                make_error(Failure(STORE, rule.codes[0]), "")
        case FailureClass.MESSAGE:
            await receive_message(world.east, delivery_of(sent))
            entry = world.entries()[-1]
            assert entry["status"] == "faulted"
            assert rule.why in entry["reason"]
            assert len(world.bus.messages("east", "errors")) == 1
        case FailureClass.UNKNOWN:
            await receive_message(world.east, delivery_of(sent))
            assert world.amounts() == [1, 2]
        case FailureClass.TRANSIENT | FailureClass.DESTINATION:
            with pytest.raises(LockstepError, match=rule.why):
                await receive_message(world.east, delivery_of(sent, 3))
            assert world.amounts() == [1]
            assert world.clock.now() == pytest.approx(pause_seconds(3))
            await world.east.consumer.consume(message(0, session="acc-8"))
            await receive_message(world.east, delivery_of(sent, 4))
            assert [world.amounts(), world.amounts("acc-8")] == [[1, 2], [1]]


@pytest.mark.parametrize("rule", BUS_RULES, ids=lambda rule: rule.why)
async def test_what_a_failure_of_the_bus_means_to_a_message(rule: FailureRule) -> None:
    world = World()
    world.bus.fault_plan = FailingOnce(rule, "send.west")

    await receive_message(world.east, delivery_of(message(0, kind="account.bill")))
    await receive_message(world.east, delivery_of(message(1, kind="account.bill")))

    assert world.amounts() == [1, 2]
    assert len(world.outputs("east")) == 2
    if rule.failure_class is FailureClass.MESSAGE:
        # The queue refused the first of them once, and took it when it was sent alone.
        assert len(world.outputs("west")) == 2
        return
    for _ in range(3):
        world.clock.seconds += 60.0
        await world.west.recovery.sweep()
    assert set(world.outputs("west")) == set(world.outputs("east"))
    assert await world.pending() == []

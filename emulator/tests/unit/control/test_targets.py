"""A fault that could never hit anything is refused with what is wrong about it."""

import pytest

from local.cosmos.http.requests import list_targets
from local.durable.backend import target_of as durable
from local.faults import LINK_ACTIONS, Action, Fault, InvalidFault, Target, check_aim
from local.servicebus.broker import OPERATIONS

REGIONAL = Target("store", {"read": frozenset({Action.DOWN})}, frozenset({"east", "west"}))
TARGETS = [
    *list_targets({"journal": 2}, ["east", "west"]),
    Target("servicebus.east", OPERATIONS, states=LINK_ACTIONS, entities=frozenset({"orders"})),
    durable("durable.east"),
    REGIONAL,
]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("*", Action.DOWN),
        Fault("cosmos", Action.STATUS, "create"),
        Fault("cosmos", Action.DOWN, "account"),
        Fault("cosmos.journal", Action.DROP_ANSWER, "batch"),
        Fault("servicebus", Action.DUPLICATE),
        Fault("servicebus.east", Action.LOSE_LOCK, "renew-session-lock"),
        Fault("durable", Action.DELAY, "start-instance"),
        Fault("durable.east", Action.DOWN),
        Fault("store", Action.DOWN, region="west"),
        Fault("*", Action.DOWN, "read", region="west"),
        Fault("servicebus", Action.SILENT),
        Fault("cosmos", Action.SILENT, region="west"),
        Fault("servicebus.east", Action.SLOW_LINK, seconds=0.13),
        Fault("servicebus", Action.DOWN, entity="Orders"),
        Fault("cosmos.journal", Action.STATUS, entity="1"),
        Fault("cosmos", Action.DOWN, entity="0", region="west"),
    ],
)
def test_a_fault_that_can_hit_something_is_taken(fault: Fault) -> None:
    check_aim(fault, TARGETS)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            Fault("service-bus", Action.DOWN),
            "only *, cosmos, cosmos.journal, durable, durable.east, servicebus, servicebus.east,",
        ),
        (Fault("cosmos.jurnal", Action.DOWN), "no component 'cosmos.jurnal'"),
        (Fault("cosmos.journal", Action.DOWN, "account"), "no operation 'account', only batch,"),
        (Fault("servicebus", Action.DOWN, "read"), "servicebus has no operation 'read'"),
        (Fault("durable.mars", Action.DOWN), "no component 'durable.mars'"),
        (Fault("durable", Action.DROP_CONNECTION), "drop-connection never hits * of durable"),
        (Fault("cosmos", Action.DUPLICATE), "duplicate never hits * of cosmos"),
        (
            Fault("servicebus", Action.DELAY, "deliver"),
            "never hits deliver of servicebus, only down, drop-connection, duplicate, lose-lock",
        ),
        (Fault("*", Action.LOSE_LOCK, "send"), "lose-lock never hits send"),
        (Fault("durable", Action.SILENT), "silent never hits * of durable"),
        (Fault("servicebus", Action.DOWN, entity="ordres"), "no entity 'ordres' in servicebus"),
        (Fault("cosmos", Action.DOWN, entity="orders"), "no entity 'orders' in cosmos"),
        (Fault("cosmos.journal", Action.DOWN, entity="2"), "no entity '2' in cosmos.journal"),
        (
            Fault("cosmos", Action.MOVE_WRITES, region="west"),
            "it needs Cosmos.PerPartitionAutomaticFailover: true",
        ),
        (
            Fault("durable", Action.DOWN, "hand-out"),
            "never hits hand-out of durable, which is only counted",
        ),
        (Fault("store", Action.DOWN, region="mars"), "'mars' in store, only east, west"),
        (
            Fault("servicebus.east", Action.DOWN, region="east"),
            "'east' in servicebus.east, which is not served by region",
        ),
        (Fault("*", Action.DUPLICATE, region="east"), "duplicate never hits"),
    ],
)
def test_a_fault_that_can_hit_nothing_is_refused_by_name(fault: Fault, reason: str) -> None:
    with pytest.raises(InvalidFault) as refusal:
        check_aim(fault, TARGETS)

    assert reason in str(refusal.value)


def test_the_writes_of_a_partition_move_where_the_account_lets_them() -> None:
    targets = list_targets({"journal": 2}, ["east", "west"], partitions_fail_over=True)

    check_aim(Fault("cosmos", Action.MOVE_WRITES, region="west"), targets)
    check_aim(Fault("cosmos.journal", Action.MOVE_WRITES, region="east", entity="1"), targets)
    for fault, reason in (
        (Fault("cosmos", Action.MOVE_WRITES, region="mars"), "no region 'mars'"),
        (Fault("cosmos", Action.MOVE_WRITES, region="west", entity="2"), "no entity '2'"),
    ):
        with pytest.raises(InvalidFault, match=reason):
            check_aim(fault, targets)

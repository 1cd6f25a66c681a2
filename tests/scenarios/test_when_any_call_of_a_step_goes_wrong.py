"""Any call that a handler in steps makes of the store goes wrong, in every way: each step once."""

from dataclasses import replace
from itertools import product

import pytest

from shared.testkit.regions import PatientClock
from tests.business import swept
from tests.crashes import redelivered, sent, worlds
from tests.provider import (
    BUY,
    KINDS,
    POLICIES,
    RECEIPTS,
    STEPS,
    Provider,
    beside,
    bought,
    decide_unknown,
    purchases,
)
from tests.world import World


# Five ways of going wrong follow each other for each call, so every third has all ways and calls.
# Results of 5,000 bytes lie beside their claims.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "policy", "size", "every"),
    [
        pytest.param(kind, policy, size, every, marks=[] if every > 1 else pytest.mark.proof)
        for kind, policy, size, every in [
            *product(KINDS, POLICIES, [0, 5_000], [1]),
            ("gather", "halt", 0, 3),
            ("buy", "ask", 5_000, 3),
        ]
    ],
)
async def test_whatever_call_goes_wrong_each_step_is_done_once(
    kind: str, policy: str, size: int, every: int
) -> None:
    arriving = replace(BUY, type=kind)
    provider = Provider(knows_keys=policy == "repeat", size=size)
    decided, seen = 0, 0

    async def work(world: World) -> None:
        provider.done.clear()
        await redelivered(world, arriving)
        await swept(world)

    expected: list[tuple[str, bytes]] = []
    handlers = purchases(provider, policy, attempts=9)
    async for world in worlds(work, handlers, clock=PatientClock, every=every):
        decided += await decide_unknown(world, provider)
        expected = expected or sent(world, "east")
        assert sorted(provider.names) == sorted(STEPS), world.fault_plan
        assert bought(world) == RECEIPTS, world.fault_plan
        assert beside(world) == [], world.fault_plan
        assert sent(world, "east") == sent(world, "west") == expected, world.fault_plan
        seen += 1
    assert seen > 40
    # Only where nobody may ask or repeat is a person needed.
    assert (decided > 0) == (policy == "halt")

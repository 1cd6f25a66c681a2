"""Whatever two regions went through, the same handlers make the same entries of what was kept."""

import os
from collections.abc import Iterable
from dataclasses import replace

import pytest

from proof.simulation.run import simulate
from proof.simulation.work.scenarios import SCENARIOS, Scenario
from proof.simulation.world.faults import ROUGH, SeededRandom
from proof.simulation.world.recorder import Violation
from proof.simulation.world.variant import Variant
from proof.simulation.world.world import World
from shared.backtest.history import build_history
from shared.backtest.rerun import run_again
from shared.backtest.sums import Sums, describe_sums
from shared.domain.handler import Handlers
from tests.sizes import FIRST_SEED, IS_PROOF

pytestmark = pytest.mark.slow

SEEDS = 60 if IS_PROOF else 4
AT_FULL_SIZE = [
    pytest.param(name, marks=pytest.mark.proof) for name in ("orders", "endings", "asks")
]
OTHER_HANDLERS = "P4"
# What may be left out of a run in which everything is kept.
EXPECTED = {
    "has a handler that calls the outside",
    "is a decision of a person, and has no message",
    "is a record of a saga: its plan decides, and no handler",
    "only parked its message: a later entry processed it",
    "skipped its message: no handler ran",
    "faulted for what no handler returned or raised",
    "stands behind an entry that is not kept",
}


@pytest.fixture(autouse=True)
def keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Variant.policy.fget  # type: ignore[attr-defined]
    kept = property(lambda variant: replace(usual(variant), keeps_inputs=True))
    monkeypatch.setattr(Variant, "policy", kept)


def sums_of(world: World, handlers: Handlers) -> Sums:
    sums = Sums()
    for session, entries in world.journal.store.entries.items():
        documents = [entries[position] for position in sorted(entries)]
        sums.take(session, run_again(build_history(documents), handlers))
    return sums


@pytest.mark.parametrize("name", ["accounts", *AT_FULL_SIZE])
def test_no_seed_differs(name: str) -> None:
    whole = Sums()

    def factory(rng: SeededRandom, variant: Variant) -> Scenario:
        usual = SCENARIOS[name](rng, variant)

        def check(world: World) -> Iterable[Violation]:
            sums = sums_of(world, usual.handlers)
            whole.add(sums)
            if sums.found:
                yield Violation(OTHER_HANDLERS, "\n".join(describe_sums(sums)))

        return replace(usual, check=check)

    first = int(os.environ[FIRST_SEED])
    for seed in range(first, first + SEEDS):
        report = simulate(seed, ROUGH, scenario=factory)
        assert not report.violations, f"seed {seed}: {report.violations}"

    assert whole.messages.total() > SEEDS
    assert {why for why, _ in whole.left_out} <= EXPECTED

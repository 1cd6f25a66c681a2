"""The same seed has the same injector in store, and the local cloud honours all of it."""

from itertools import islice, pairwise

import pytest

from local.cloud import Cloud, CloudOptions
from local.config import load_config
from local.cosmos.http.requests import list_targets
from local.faults import Fault, Target, check_aim
from proof.chaos.plan import OutageKind, PlannedFault, plan_degradations, plan_outages
from proof.chaos.processes import APP, adapt_config
from proof.testbed.apps import compose_app

REGIONS = ("east", "west")
MANY = 400


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    """What can be hit in the cloud that chaos runs."""
    app = tmp_path_factory.mktemp("app")
    compose_app(APP, app, adapt_config)
    config = load_config(app / "local.config.json")
    containers = (container.name for container in config.cosmos.containers)
    of_store = list_targets(containers, config.cosmos.regions)
    return [*of_store, *Cloud(config, CloudOptions(logs=app)).targets()]


@pytest.mark.parametrize("plan", [plan_outages, plan_degradations])
def test_a_seed_repeats_its_plan_and_another_has_another(plan: type) -> None:
    first, again, other = (list(islice(plan(seed, REGIONS), MANY)) for seed in (7, 7, 8))

    assert first == again
    assert first != other


@pytest.mark.parametrize("plan", [plan_outages, plan_degradations])
def test_one_fault_begins_after_the_one_before_it_has_ended(plan: type) -> None:
    planned_faults: list[PlannedFault] = list(islice(plan(7, REGIONS), MANY))

    for before, after in pairwise(planned_faults):
        assert before.at + before.seconds < after.at


def test_everything_is_taken_away_in_each_round_and_from_both_regions() -> None:
    struck = list(islice(plan_outages(7, REGIONS), MANY))

    rounds = [struck[at : at + len(OutageKind)] for at in range(0, MANY, len(OutageKind))]
    assert all({planned.outage for planned in one} == set(OutageKind) for one in rounds)
    for outage in (OutageKind.HOST, OutageKind.REGION, OutageKind.NAMESPACE):
        assert {m.regions for m in struck if m.outage is outage} == {("east",), ("west",)}
    assert {m.regions for m in struck if m.outage is OutageKind.HOSTS} == {REGIONS}


def test_the_local_cloud_honours_every_fault_of_a_long_plan(targets: list[Target]) -> None:
    for degradation in islice(plan_degradations(7, REGIONS), MANY):
        fault = Fault.parse(dict(degradation.fault))
        check_aim(fault, targets)

        assert fault.duration_seconds == degradation.seconds
        assert degradation.components == (fault.component,)
        assert fault.action in degradation.what

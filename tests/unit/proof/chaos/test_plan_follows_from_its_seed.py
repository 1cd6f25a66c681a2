"""The same seed has the same injector in store, and the local cloud honours all of it."""

from itertools import islice, pairwise

import pytest

from local.cloud import Cloud, CloudOptions
from local.config import load_config
from local.cosmos.http.requests import list_targets
from local.faults import Fault, Target, check_aim
from proof.chaos.plan import (
    MAY_BE_SILENT,
    OutageKind,
    PlannedFault,
    plan_degradations,
    plan_outages,
)
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
    containers = {container.name: container.partitions for container in config.cosmos.containers}
    of_store = list_targets(containers, config.cosmos.regions)
    return [*of_store, *Cloud(config, CloudOptions(logs=app)).targets()]


@pytest.mark.parametrize("plan", [plan_outages, plan_degradations])
def test_a_seed_repeats_its_plan_in_which_one_fault_follows_the_other(plan: type) -> None:
    planned: list[PlannedFault] = list(islice(plan(7, REGIONS), MANY))

    assert planned == list(islice(plan(7, REGIONS), MANY))
    assert planned != list(islice(plan(8, REGIONS), MANY))
    assert all(one.at + one.seconds < other.at for one, other in pairwise(planned))
    if plan is plan_outages:
        assert {one.outage for one in planned[: len(OutageKind)]} == set(OutageKind)
        assert {one.outage for one in planned if one.is_silent} == set(MAY_BE_SILENT)


def test_the_local_cloud_honours_every_fault_of_a_long_plan(targets: list[Target]) -> None:
    for degradation in islice(plan_degradations(7, REGIONS), MANY):
        fault = Fault.parse(dict(degradation.fault))
        check_aim(fault, targets)

        assert fault.duration_seconds == degradation.seconds
        assert degradation.components == (fault.component,)
        assert fault.action in degradation.what

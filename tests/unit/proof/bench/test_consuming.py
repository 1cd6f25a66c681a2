"""A measured system on the real local cloud, with a handful of messages."""

import pytest

from local.testing.patience import wait_until
from proof.bench.systems import EMPTY
from proof.bench.throughput.consuming import Consumption, Shape, with_host
from proof.bench.throughput.profile import read_samples, running_sampled

pytestmark = pytest.mark.e2e

FEW = Shape(sessions=2, each=3)
WORK_OF_THE_HOST = "/local/functions_host/"


@pytest.mark.proof
def test_a_host_with_a_sampler_settles_what_was_loaded_and_is_sampled() -> None:
    with running_sampled(EMPTY) as made:
        made.load(FEW)
        assert made.host()["state"] == "stopped"

        with with_host(made) as pid:
            assert made.watch(pid, FEW.messages).messages == FEW.messages
            wait_until(
                lambda: is_sampled(made),
                seconds=60,
                what="no sample of the host's own work",
            )
        assert made.host()["state"] == "stopped"


def is_sampled(made: Consumption) -> bool:
    return any(WORK_OF_THE_HOST in frame for stack, _ in read_samples(made) for frame in stack)

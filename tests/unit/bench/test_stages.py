"""The stage of a measurement on the real local cloud, with a handful of messages."""

import pytest

from bench.cloud import until
from bench.systems import EMPTY
from bench.throughput.sampled import samples, sampling_stage
from bench.throughput.stage import Shape, Stage, with_host

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

FEW = Shape(sessions=2, each=3)
WORK_OF_THE_HOST = "/local/functions_host/"


def test_a_host_with_a_sampler_settles_what_was_loaded_and_is_sampled() -> None:
    with sampling_stage(EMPTY) as made:
        made.load(FEW)
        assert made.host()["state"] == "stopped"

        with with_host(made) as pid:
            assert made.look(pid, FEW.messages).messages == FEW.messages
            until(lambda: is_sampled(made), seconds=60, what="no sample of the host's own work")
        assert made.host()["state"] == "stopped"


def is_sampled(stage: Stage) -> bool:
    return any(WORK_OF_THE_HOST in frame for stack, _ in samples(stage) for frame in stack)

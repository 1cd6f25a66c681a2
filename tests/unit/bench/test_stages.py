"""The stage of a measurement on the real local cloud, with a handful of messages."""

import pytest

from bench.systems import EMPTY
from bench.throughput.sampled import samples, sampling_stage
from bench.throughput.stage import Shape, with_host

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

FEW = Shape(sessions=2, each=3)


def test_a_host_with_a_sampler_settles_what_was_loaded_and_is_sampled() -> None:
    with sampling_stage(EMPTY) as made:
        made.load(FEW)
        assert made.host()["state"] == "stopped"

        with with_host(made) as pid:
            assert made.look(pid, FEW.messages).messages == FEW.messages
            stacks = [stack for stack, _ in samples(made)]
        assert any("local/functions_host/__main__.py:main" in frame for s in stacks for frame in s)
        assert made.host()["state"] == "stopped"

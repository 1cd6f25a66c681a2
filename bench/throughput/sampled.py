"""Run a system once more with a sampler inside its host."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

from bench.systems import ROOT, System
from bench.throughput.profile import Profile, Samples, profile_of
from bench.throughput.stage import Rate, Shape, Stage, stage, with_host

WRAPPER = ROOT / "bench" / "throughput" / "profiled" / "function_app.py"
ANSWER_SECONDS_MAX = 30.0


def sampled(system: System, shape: Shape) -> tuple[Rate, Profile]:
    """How fast it was with the sampler, and where the host's time went."""
    with sampling_stage(system) as made:
        made.load(shape)
        with with_host(made) as pid:
            rate = made.drain(shape, pid)
            return rate, profile_of(samples(made))


@contextmanager
def sampling_stage(system: System) -> Iterator[Stage]:
    """A stage for the sampling app, with the limits of the system's own host."""
    settings = system.settings | {"BENCH_PROFILED_APP": str(system.app)}
    with tempfile.TemporaryDirectory(prefix="bench-") as app:
        shutil.copy(WRAPPER, app)
        shutil.copy(system.app / "host.json", app)
        with stage(replace(system, settings=settings), Path(app)) as made:
            yield made


def samples(stage: Stage) -> Samples:
    """What the sampler in the running host has noted so far."""
    url = f"{stage.host()['url']}/api/bench/profile"
    with urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - our own
        noted: Samples = json.load(answer)
    return noted

"""A profile of a host's processor time, from a sampler inside it: by owner, and by function."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from local.testing.control import request_json
from proof.bench.systems import ROOT, System
from proof.bench.throughput.consuming import Consumption, Rate, Shape, running_system, with_host

# By a part of the file's path, the first that matches; the innermost frame with an owner owns.
OWNERS = {
    "/site-packages/azure_functions_runtime/": "Functions worker library",
    "/site-packages/azure/functions/": "Functions worker library",
    "/site-packages/azure/cosmos/": "Cosmos SDK",
    "/site-packages/azure/core/": "Cosmos SDK",
    "/site-packages/azure/servicebus/": "Service Bus SDK",
    "/site-packages/aiohttp/": "aiohttp, below the Cosmos SDK",
    "/site-packages/yarl/": "aiohttp, below the Cosmos SDK",
    "/site-packages/multidict/": "aiohttp, below the Cosmos SDK",
    "/site-packages/pydantic/": "pydantic",
    "/site-packages/proton/": "local host, its AMQP",
    "/site-packages/cproton": "local host, its AMQP",
    f"{ROOT}/emulator/local/functions_host/clients/change_feed.py": "local host, its change feed",
    f"{ROOT}/emulator/local/": "local host",
    f"{ROOT}/shared/": "engine (shared)",
    f"{ROOT}/functions/": "triggers and handlers (functions)",
    "/logging/": "logging",
}
WRAPPER = Path(__file__).parent / "profiled" / "function_app.py"
NOBODY = "event loop"
IMPORT = "<frozen importlib"
ENGINE = (f"{ROOT}/shared/", f"{ROOT}/functions/")

type Samples = Sequence[tuple[Sequence[str], int]]


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares of all samples: by owner, by function, and by function of ours with what it calls."""

    samples: int
    owners: dict[str, float]
    itself: dict[str, float]
    ours: dict[str, float]


def build_profile(samples: Samples) -> Profile:
    """Add the samples up, the largest share first; importing the app does not count."""
    samples = [(stack, seen) for stack, seen in samples if not any(IMPORT in f for f in stack)]
    total = sum(seen for _, seen in samples)
    owners: Counter[str] = Counter()
    itself: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    for stack, seen in samples:
        owners[find_owner(stack)] += seen
        itself[shorten_frame(stack[0])] += seen
        ours.update(dict.fromkeys({shorten_frame(f) for f in stack if f.startswith(ENGINE)}, seen))
    ordered = (counts.most_common() for counts in (owners, itself, ours))
    return Profile(total, *({name: seen / total for name, seen in each} for each in ordered))


def find_owner(stack: Sequence[str]) -> str:
    for frame in stack:
        path = frame.rpartition(":")[0]
        for part, owner in OWNERS.items():
            if part in path:
                return owner
    return NOBODY


def shorten_frame(frame: str) -> str:
    path, _, function = frame.rpartition(":")
    return f"{'/'.join(path.split('/')[-2:])}:{function}"


def sample_system(system: System, shape: Shape) -> tuple[Rate, Profile]:
    with running_sampled(system) as made:
        made.load(shape)
        with with_host(made) as pid:
            rate = made.drain(shape, pid)
            return rate, build_profile(read_samples(made))


@contextmanager
def running_sampled(system: System) -> Iterator[Consumption]:
    """Run the system with a sampler in its host, which has the limits of its own host."""
    settings = system.settings | {"BENCH_PROFILED_APP": str(system.app)}
    with tempfile.TemporaryDirectory(prefix="bench-") as app:
        shutil.copy(WRAPPER, app)
        shutil.copy(system.app / "host.json", app)
        with running_system(replace(system, settings=settings), Path(app)) as made:
            yield made


def read_samples(consumption: Consumption) -> Samples:
    url = f"{consumption.host()['url']}/api/bench/profile"
    noted: Samples = request_json("GET", url)[1]
    return noted

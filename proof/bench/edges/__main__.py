"""`python -m proof.bench.edges`: what a fault that stays, a silent region and a far store cost.

Both regions run on one local cloud, with a handler whose every message has one output. Faults are
armed by the cloud's own control endpoint. To compare two versions of the app, run this in a
checkout of each, one after the other on the same machine. Exit status: 0 it was measured, whatever
the aims say; 2 it was not.

    stays    every request to the journal is refused for a while, then none
    silent   one namespace takes connections and messages, and never answers
    far      every write of the journal takes 130 ms, with 40 new sessions a second
    parked   messages wait for one that is missing, which then comes; writes take 130 ms
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from local.testing.cloud import CloudProcess
from local.testing.control import Counters, count_operations
from local.testing.patience import wait_until
from proof.bench.load import send
from proof.testbed.apps import compose_app
from proof.testbed.cloud import running_cloud
from proof.testbed.command import RunFailed, exit_status, run_program
from shared.domain.message import Message, Number, derive_id

WAIT_SECONDS_MAX = 900.0
LOOK_SECONDS = 0.2
SILENT_SECONDS, FAR_SECONDS = 3600.0, 0.13
ERROR_SECONDS = 60.0
# So long a resend is waited for.
LAG_SECONDS = 20.0
PARKED = 1_000
WRITES = ("batch", "create", "replace", "upsert", "patch")
REQUESTS = (*WRITES, "read", "query")
OUTPUTS = "lockstep-out"
# A right that is gone, a store that is busy, and a document that no store takes.
STATUSES = (403, 503, 400)


@dataclass
class Edges:
    """A running cloud, and what is sent to it."""

    cloud: CloudProcess
    names: Iterator[int] = field(default_factory=lambda: count(1))

    def new_sessions(self, number: int) -> list[str]:
        return [f"edge-{next(self.names)}" for _ in range(number)]

    def send(self, region: str, messages: Sequence[Message]) -> None:
        send(self.cloud.contract["servicebus"][region], self.cloud.queue, [list(messages)])

    def completed(self, region: str) -> int:
        return self.cloud.control.count_completed(region)

    def have_completed(self, ends: Mapping[str, int]) -> bool:
        return all(self.completed(region) >= number for region, number in ends.items())

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> float:
        """Wait until something is so; how many seconds that took. Raises RunFailed."""
        began = time.monotonic()
        wait_until(
            is_so,
            seconds=WAIT_SECONDS_MAX,
            what=f"it did not happen that {what}",
            error=RunFailed,
            poll_seconds=LOOK_SECONDS,
        )
        return time.monotonic() - began

    def outputs(self, region: str) -> int:
        """Count the outputs in a region's queue, which nobody reads; a resent one counts."""
        depth = self.cloud.control.read_depths()[region][OUTPUTS]
        return depth["active"] + depth["scheduled"]

    def arm(self, component: str, action: str, operation: str, **more: object) -> int:
        fault = {"component": component, "action": action, "operation": operation, **more}
        return self.cloud.control.arm(fault)


def step(session: str, sequence: int) -> Message:
    number = Number("edges", 0, sequence)
    return Message(derive_id(session, str(sequence)), session, "edge.step", b"{}", number)


def measure_error_that_stays(edges: Edges) -> Iterator[str]:
    """Count deliveries and requests while every request to the journal is refused."""
    home, away = edges.cloud.regions
    control = edges.cloud.control
    yield f"an error that stays for {ERROR_SECONDS:.0f} s, with 20 sessions of one message"
    for status in STATUSES:
        sessions = edges.new_sessions(20)
        done = {region: edges.completed(region) for region in (home, away)}
        fault = edges.arm("cosmos.journal", "status", "*", status=status)
        before = control.read_counters()
        for region in (home, away):
            edges.send(region, [step(session, 0) for session in sessions])
        time.sleep(ERROR_SECONDS)
        after = control.read_counters()
        control.clear(fault)
        ends = {region: number + len(sessions) for region, number in done.items()}
        ended = edges.wait_for(
            f"all is settled after {status}", partial(edges.have_completed, ends)
        )
        delivered = sum(
            count_operations(after, f"servicebus.{region}", "deliver")
            - count_operations(before, f"servicebus.{region}", "deliver")
            for region in (home, away)
        )
        requests = count_requests(after) - count_requests(before)
        dead = sum(count_operations(after, f"servicebus.{r}", "dead-letter") for r in (home, away))
        yield (
            f"  {status}: {delivered / 40:.1f} deliveries a copy,"
            f" {requests / ERROR_SECONDS / 20:.2f} requests a second and session,"
            f" all settled {ended:.1f} s after it ended, {dead} dead letters"
        )


def count_requests(counters: Counters) -> int:
    """Count the requests to the journal of which the change feed is no part."""
    return sum(count_operations(counters, "cosmos.journal", name) for name in REQUESTS)


def measure_silence(edges: Edges) -> Iterator[str]:
    """Measure the rate of the healthy region, beside its rate with both."""
    home, away = edges.cloud.regions
    yield "50 sessions of 20 messages in one region"
    usual = yield from measure_rate(edges, home, "both answer")
    fault = edges.arm(f"servicebus.{away}", "delay", "*", seconds=SILENT_SECONDS)
    alone = yield from measure_rate(edges, home, "the other is silent")
    edges.cloud.control.clear(fault)
    yield f"  {alone / usual:.2f} of the normal rate, at least 0.8"


def measure_rate(edges: Edges, region: str, what: str) -> Generator[str, None, float]:
    sessions, done = edges.new_sessions(50), edges.completed(region)
    edges.send(region, [step(session, n) for session in sessions for n in range(20)])
    taken = edges.wait_for(what, lambda: edges.completed(region) >= done + 1000)
    yield f"  {what}: {1000 / taken:.0f} messages a second, the last one after {taken:.1f} s"
    return 1000 / taken


def measure_far_store(edges: Edges) -> Iterator[str]:
    """Count the outputs that are sent more than once because the store is far away."""
    home, away = edges.cloud.regions
    faults = arm_far_store(edges)
    before = {region: edges.outputs(region) for region in (home, away)}
    done, expected = edges.completed(home), 0
    for _ in range(20):
        began = time.monotonic()
        edges.send(home, [step(session, 0) for session in edges.new_sessions(40)])
        expected += 40
        time.sleep(max(0.0, 1 - (time.monotonic() - began)))
    edges.wait_for("all is settled", lambda: edges.completed(home) >= done + expected)
    # Whatever would send them again has had its chance by then.
    time.sleep(LAG_SECONDS)
    clear(edges, faults)
    yield "writes of 130 ms, 40 new sessions a second for 20 s"
    for region in (home, away):
        sent = edges.outputs(region) - before[region]
        yield f"  {expected} outputs were sent {sent} times to {region}"


def measure_parked(edges: Edges) -> Iterator[str]:
    """Measure how long it takes until all that waited is processed."""
    home, _ = edges.cloud.regions
    (session,), number = edges.new_sessions(1), PARKED
    done, outputs = edges.completed(home), edges.outputs(home)
    edges.send(home, [step(session, n) for n in range(1, number + 1)])
    edges.wait_for("all wait", lambda: edges.completed(home) >= done + number)
    faults = arm_far_store(edges)
    edges.send(home, [step(session, 0)])
    taken = edges.wait_for("all are done", lambda: edges.outputs(home) > outputs + number)
    clear(edges, faults)
    yield f"{number} messages that waited for one, writes of 130 ms: processed after {taken:.1f} s"


def arm_far_store(edges: Edges) -> list[int]:
    return [edges.arm("cosmos.journal", "delay", name, seconds=FAR_SECONDS) for name in WRITES]


def clear(edges: Edges, faults: Sequence[int]) -> None:
    for fault in faults:
        edges.cloud.control.clear(fault)


MEASUREMENTS = {
    "stays": measure_error_that_stays,
    "silent": measure_silence,
    "far": measure_far_store,
    "parked": measure_parked,
}


@contextmanager
def running_edges() -> Iterator[Edges]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        compose_app(Path(__file__).parent / "app", Path(name))
        with running_cloud("--app", name) as cloud:
            yield Edges(cloud)


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.edges",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = f"what is measured: {', '.join(MEASUREMENTS)} (everything)"
    every = list(MEASUREMENTS)
    parser.add_argument("what", nargs="*", type=parse_name, default=every, help=what)
    return parser.parse_args(words)


def parse_name(text: str) -> str:
    if text not in MEASUREMENTS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(MEASUREMENTS)}")
    return text


def run(options: argparse.Namespace) -> int:
    for what in options.what:
        # Each has a cloud of its own: what one left undone would cost the next one time.
        with running_edges() as edges:
            for line in MEASUREMENTS[what](edges):
                print(line, flush=True)
    return 0


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    return exit_status("python -m proof.bench.edges", lambda: run(options))


if __name__ == "__main__":
    run_program(main)

"""`python -m proof.bench.throughput`: messages per second, beside a bare receiver and two patterns.

Every contestant has a local cloud of its own. In turn, round by round, its primary region's queue
is loaded, and then one process consumes: the host of that region, or a bare azure-servicebus
session receiver that only completes. An empty function shows what any app on such a host can reach.
The secondary region gets nothing.

Clocks on a shared machine lie: look at the ratios, which are taken round by round, and at the
processor time per message. Exit status: 0 it was measured, whatever the aims say; 2 it was not.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

from cli.running import run_program
from proof.bench.systems import CLAIM_AND_UPDATE, EMPTY, ONE_CALL, OURS, SYSTEMS, System
from proof.bench.throughput import consuming
from proof.bench.throughput.consuming import (
    Consumption,
    Latencies,
    ProcessId,
    Rate,
    Shape,
    with_host,
)
from proof.bench.throughput.over_http import measure_http
from proof.bench.throughput.sparse import LOAD_SECONDS, SESSIONS, measure_lateness
from proof.testbed.command import exit_status, make_parser, parse_count, show_progress

SHAPES = (Shape(50, 40), Shape(1000, 5), Shape(4, 500))
BARE_AIM, PATTERN_AIM = 0.7, 3.0
BARE = "bare receiver"
NAME_WIDTH = 20

# By contestant, one rate per round.
type Rates = Mapping[str, Sequence[Rate]]


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    system: System
    consume: Callable[[Consumption], AbstractContextManager[ProcessId]] = with_host

    @property
    def running(self) -> AbstractContextManager[Consumption]:
        return consuming.running_system(
            self.system, self.system.app if self.consume is with_host else None
        )


def list_contestants() -> list[Contestant]:
    """Return everybody; ours also with one call of a session at a time."""
    systems = [EMPTY, *SYSTEMS, ONE_CALL]
    hosted = [Contestant(one.name, one) for one in systems]
    return [Contestant(BARE, EMPTY, consuming.with_bare_receiver), *hosted]


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = make_parser("proof.bench.throughput", __doc__)
    rounds, shape = "how often everybody runs (3)", "a load, repeatable (50x40, 1000x5, 4x500)"
    parser.add_argument("--rounds", type=parse_count, default=3, help=rounds)
    add_shape = partial(parser.add_argument, "--shape", metavar="SESSIONSxEACH")
    add_shape(type=parse_shape, action="append", help=shape)
    for name, what in (
        ("write", "each write of a store"),
        ("read", "each read of a store"),
        ("settle", "each settlement"),
    ):
        parser.add_argument(
            f"--{name}-ms", type=float, default=0.0, metavar="MS", help=f"{what} waits so long (0)"
        )
    sparse = "1,000 sessions of one message over 30 s instead: how late each is settled"
    parser.add_argument("--sparse", action="store_true", help=sparse)
    http = "50 clients of 20 messages by HTTP instead: what is published beside what is asked"
    parser.add_argument("--http", action="store_true", help=http)
    return parser.parse_args(words)


def parse_shape(text: str) -> Shape:
    sessions, _, each = text.partition("x")
    if not (sessions.isdigit() and each.isdigit()) or not int(sessions) * int(each):
        raise argparse.ArgumentTypeError("must be two numbers, as in 50x40")
    return Shape(int(sessions), int(each))


def measure(shape: Shape, rounds: int, latencies: Latencies) -> dict[str, list[Rate]]:
    rates: defaultdict[str, list[Rate]] = defaultdict(list)
    with ExitStack() as running:
        everybody = list_contestants()
        clouds = {one.name: running.enter_context(one.running) for one in everybody}
        for cloud in clouds.values():
            cloud.put_at_a_distance(latencies)
        for number in range(1, rounds + 1):
            for one in everybody:
                show_progress(f"{shape.sessions}x{shape.each}, round {number}: {one.name}")
                own = clouds[one.name]
                own.load(shape)
                with one.consume(own) as pid:
                    rates[one.name].append(own.drain(shape, pid))
    return dict(rates)


def measure_sparse(latencies: Latencies) -> Iterator[str]:
    """Yield a line for each contestant: how late messages are settled that come one at a time."""
    yield f"{SESSIONS} sessions of one message over {LOAD_SECONDS:g} s, ms until settled"
    yield f"{'':{NAME_WIDTH}}{'median':>8}{'99 %':>8}"
    for one in list_contestants():
        show_progress(f"sparse load: {one.name}")
        with one.running as own:
            own.put_at_a_distance(latencies)
            with one.consume(own):
                middle, nearly_all = measure_lateness(own)
        yield f"{one.name:{NAME_WIDTH}}{middle * 1000:8.0f}{nearly_all * 1000:8.0f}"


def compare_with_aims(rates: dict[str, list[Rate]]) -> Iterator[str]:
    for name, least in ((BARE, BARE_AIM), (CLAIM_AND_UPDATE.name, PATTERN_AIM)):
        found = compute_ratio(rates[OURS.name], rates[name])
        word = "holds" if found >= least else "missed"
        yield f"aim {word}: {found:.2f} of {name}, at least {least:g}"


def format_table(shape: Shape, rates: Rates, ours: str) -> Iterator[str]:
    """Yield medians over the rounds, their spread, and what ours is to each other contestant."""
    yield f"{shape.sessions} sessions of {shape.each} messages"
    yield (
        f"{'':{NAME_WIDTH}}{'msg/s':>8}{'min':>7}{'max':>7}{'ours is':>9}"
        f"{'consumer ms':>13}{'busy':>6}{'cloud ms':>10}{'busy':>6}"
    )
    for name, rounds in rates.items():
        yield format_row(name, rounds, compute_ratio(rates[ours], rounds))


def format_row(name: str, rounds: Sequence[Rate], ours_is: float) -> str:
    speeds = [rate.per_second for rate in rounds]
    consumer = median(rate.consumer_seconds / rate.messages for rate in rounds)
    cloud = median(rate.cloud_seconds / rate.messages for rate in rounds)
    consumer_busy = median(rate.consumer_seconds / rate.seconds for rate in rounds)
    cloud_busy = median(rate.cloud_seconds / rate.seconds for rate in rounds)
    return (
        f"{name:{NAME_WIDTH}}{median(speeds):8.0f}{min(speeds):7.0f}{max(speeds):7.0f}"
        f"{ours_is:8.2f}x{consumer * 1000:13.2f}{consumer_busy:6.0%}"
        f"{cloud * 1000:10.2f}{cloud_busy:6.0%}"
    )


def compute_ratio(ours: Sequence[Rate], theirs: Sequence[Rate]) -> float:
    """Return the median over the rounds: what the machine does to one round, it does to both."""
    pairs = zip(ours, theirs, strict=True)
    return median(own.per_second / other.per_second for own, other in pairs)


def run(options: argparse.Namespace) -> int:
    shapes = options.shape or SHAPES
    latencies = Latencies(options.write_ms, options.read_ms, options.settle_ms)
    if latencies != Latencies():
        print(
            f"each write waits {latencies.write_ms:g} ms, each read {latencies.read_ms:g} ms,"
            f" each settlement {latencies.settle_ms:g} ms\n"
        )
    if options.sparse:
        for line in measure_sparse(latencies):
            print(line, flush=True)
        return 0
    if options.http:
        for line in measure_http(options.rounds):
            print(line, flush=True)
        return 0
    for shape in shapes:
        rates = measure(shape, options.rounds, latencies)
        print("\n".join(format_table(shape, rates, OURS.name)))
        print("\n".join(compare_with_aims(rates)), end="\n\n")
    return 0


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    return exit_status("python -m proof.bench.throughput", lambda: run(options))


if __name__ == "__main__":
    run_program(main)

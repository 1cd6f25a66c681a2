"""`python -m bench.throughput`: messages per second, ours against a bare receiver and two patterns.

Every contestant has a local cloud of its own. In turn, round by round, its primary region's queue
is loaded, and then one process consumes: the host of that region, or a bare azure-servicebus
session receiver that only completes. An empty function shows what any app on such a host can reach.
The secondary region gets nothing.

Clocks on a shared machine lie: look at the ratios, which are taken round by round, and at the
processor time per message. Exit status: 0 it was measured, whatever the aims say; 2 it was not.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from bench.arguments import positive
from bench.cloud import BenchFailed
from bench.systems import CLAIM_AND_UPDATE, EMPTY, IN_BATCHES, OURS, SYSTEMS, System
from bench.throughput.sampled import sampled
from bench.throughput.stage import (
    ProcessId,
    Rate,
    Shape,
    Stage,
    stage,
    with_bare_receiver,
    with_host,
)
from bench.throughput.table import profile_lines, ratio, table

NOT_MEASURED, INTERRUPTED = 2, 130
SHAPES = (Shape(50, 40), Shape(1000, 5), Shape(4, 500))
# With batches a host takes one session at a time and holds a drained one for a second.
BATCH_SESSIONS_MAX = 10
BARE_AIM, PATTERN_AIM = 0.7, 3.0
BARE = "bare receiver"


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who consumes, and how it is run."""

    name: str
    system: System
    consume: Callable[[Stage], AbstractContextManager[ProcessId]] = with_host

    @property
    def stage(self) -> AbstractContextManager[Stage]:
        """Its cloud."""
        return stage(self.system, self.system.app if self.consume is with_host else None)


def contestants(shape: Shape) -> list[Contestant]:
    """Everybody; ours in batches too, where sessions are few and deep."""
    systems = [EMPTY, *SYSTEMS]
    if shape.sessions <= BATCH_SESSIONS_MAX:
        systems.append(IN_BATCHES)
    hosted = [Contestant(one.name, one) for one in systems]
    return [Contestant(BARE, EMPTY, with_bare_receiver), *hosted]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.throughput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=positive, default=3, help="how often everybody runs (3)")
    parser.add_argument(
        "--shape",
        type=shape_of,
        action="append",
        metavar="SESSIONSxEACH",
        help="a load, repeatable (50x40, 1000x5, 4x500)",
    )
    parser.add_argument("--no-profile", action="store_true", help="do not sample ours at the end")
    return parser.parse_args(words)


def shape_of(text: str) -> Shape:
    """Sessions x messages of each."""
    sessions, _, each = text.partition("x")
    if not (sessions.isdigit() and each.isdigit()) or not int(sessions) * int(each):
        raise argparse.ArgumentTypeError("must be two numbers, as in 50x40")
    return Shape(int(sessions), int(each))


def measure(shape: Shape, rounds: int) -> dict[str, list[Rate]]:
    """Every contestant's rate in every round."""
    rates: defaultdict[str, list[Rate]] = defaultdict(list)
    with ExitStack() as running:
        everybody = contestants(shape)
        stages = {one.name: running.enter_context(one.stage) for one in everybody}
        for number in range(1, rounds + 1):
            for one in everybody:
                progress(f"{shape.sessions}x{shape.each}, round {number}: {one.name}")
                own = stages[one.name]
                own.load(shape)
                with one.consume(own) as pid:
                    rates[one.name].append(own.drain(shape, pid))
    return dict(rates)


def verdicts(rates: dict[str, list[Rate]]) -> Iterator[str]:
    """What became of the aims."""
    for name, least in ((BARE, BARE_AIM), (CLAIM_AND_UPDATE.name, PATTERN_AIM)):
        found = ratio(rates[OURS.name], rates[name])
        word = "holds" if found >= least else "missed"
        yield f"aim {word}: {found:.2f} of {name}, at least {least:g}"


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    shapes = options.shape or SHAPES
    for shape in shapes:
        rates = measure(shape, options.rounds)
        print(table(shape, rates, OURS.name))
        print("\n".join(verdicts(rates)), end="\n\n")
    if not options.no_profile:
        progress(f"sampling {OURS.name}")
        print("\n".join(profile_lines(*sampled(OURS, shapes[0]))))


def progress(what: str) -> None:
    """Say on stderr what is being done."""
    print(f"... {what}", file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    """Run the command; the answer is the exit status."""
    options = arguments(words)
    try:
        run(options)
    except (BenchFailed, OSError) as error:
        print(f"python -m bench.throughput: {error}", file=sys.stderr)
        return NOT_MEASURED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

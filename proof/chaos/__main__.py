"""`python -m proof.chaos`: real processes under workload, while all around them is broken."""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from heapq import merge
from itertools import takewhile

from cli.running import run_program
from proof.chaos.options import ChaosOptions, RunFiles
from proof.chaos.plan import plan_degradations, plan_outages
from proof.chaos.run import check_run, run
from proof.testbed.command import (
    exit_status,
    make_parser,
    parse_count,
    parse_positive,
    resolve_path,
)

DESCRIPTION = """\
Sends real flights with the product's producer through both regions, on Azure on this machine with
the product's triggers, and injects faults: hosts, regions, the cloud itself and the sender die, the
journal's writes move, responses are lost, locks too. In the end everything is repaired and drained,
and a checker that knows nothing of the engine holds what came out against what went in.

Everything runs on this machine and ends with this program; Ctrl-C leaves nothing behind but the
data directory."""

EPILOG = """\
exit status: 0 every promise held, 1 one was broken, 2 the run could not be done, 130 interrupted

`python -m proof.chaos --plan` prints the fault plan of a seed, `python -m proof.chaos --judge`
checks again what the last run left."""

# Two regions, as local.config.json gives them a namespace and a host: one can be lost, one stays.
REGIONS = ("east", "west")
# What is usual for a run of some time, and for one of many messages.
RATES, OPERATIONS, PAUSE_FACTORS = (40.0, 10_000.0), (8, 25), (2.0, 5.0)


def main(words: Sequence[str]) -> int:
    asked = parse_arguments(words)
    usual = 1 if asked.messages else 0
    options = ChaosOptions(
        data=asked.data,
        seed=asked.seed,
        seconds=asked.seconds,
        messages=asked.messages,
        rate=asked.rate or RATES[usual],
        operation_max=OPERATIONS[usual],
        pause_factor=asked.ease or PAUSE_FACTORS[usual],
    )
    if asked.plan:
        print_plan(options)
        return 0
    work = partial(check_run, RunFiles(options.data)) if asked.judge else partial(run, options)
    return exit_status("python -m proof.chaos", work)


def print_plan(options: ChaosOptions) -> None:
    """Print the faults of a run of so many seconds, if everything takes its time."""
    plan = (options.seed, REGIONS, options.pause_factor)
    both = merge(plan_outages(*plan), plan_degradations(*plan), key=lambda planned: planned.at)
    for planned in takewhile(lambda planned: planned.at < options.seconds, both):
        print(planned)


def parse_arguments(words: Sequence[str]) -> Namespace:
    parser = make_parser("proof.chaos", DESCRIPTION, EPILOG)
    add, add_number = parser.add_argument, partial(parser.add_argument, metavar="N")
    seconds = "how long to send (default: 180); draining comes on top"
    add_number("--seconds", type=parse_positive, default=180.0, help=seconds)
    messages = "send so many messages instead, however long that takes"
    add_number("--messages", type=parse_count, help=messages)
    seed = "of the workload and the fault plan (default: 1)"
    add_number("--seed", type=int, default=1, help=seed)
    ease = "make pauses between faults N times as long (default: 2, or 5 with --messages)"
    add_number("--ease", type=parse_positive, help=ease)
    rate = "messages a second at most (default: 40, or no limit with --messages)"
    add_number("--rate", type=parse_positive, help=rate)
    add("--plan", action="store_true", help="print the fault plan of the seed")
    add("--judge", action="store_true", help="check the last run again")
    data = "where everything is kept; emptied at the beginning (default: .chaos)"
    add("--data", type=resolve_path, default=".chaos", metavar="DIR", help=data)
    return parser.parse_args(words)


if __name__ == "__main__":
    run_program(main)

"""`python -m chaos`: real processes under workload, while everything around them is broken."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from rich.console import Console

from chaos.options import Cardinality, ChaosOptions
from chaos.plan import plan_degradations, plan_outages
from chaos.run import check_run, run
from testbed.command import exit_status, parse_count, parse_positive, run_program

DESCRIPTION = """\
Sends real flights with the product's producer through both regions, on Azure on this machine with
the product's triggers, and injects faults: hosts, regions, the cloud itself and the sender die, the
journal's writes move, responses are lost, locks too. In the end everything is repaired and drained,
and a checker that knows nothing of the engine holds what came out against what went in.

Everything runs on this machine and ends with this program; Ctrl-C leaves nothing behind but the
data directory."""

EPILOG = """\
exit status: 0 every promise held, 1 one was broken, 2 the run could not be done, 130 interrupted

`python -m chaos --plan` prints the fault plan of a seed, `python -m chaos --judge` checks again
what the last run left."""

# Two regions, as local.config.json gives them a namespace and a host: one can be lost, one stays.
REGIONS = ("east", "west")
# What is usual for a run of some time, and for one of many messages.
RATES, OPERATIONS, PAUSE_FACTORS = (40.0, 10_000.0), (8, 25), (2.0, 5.0)


def main(words: Sequence[str]) -> int:
    """Run a command; returns the exit status."""
    arguments = parse_arguments(words)
    options = parse_options(arguments)
    if arguments.plan:
        print_plan(options)
        return 0
    if arguments.judge:
        console = Console(highlight=False)
        return exit_status("python -m chaos", lambda: check_run(options, console))
    return exit_status("python -m chaos", lambda: run(options))


def print_plan(options: ChaosOptions) -> None:
    """Print the faults of a run of so many seconds, if everything takes its time."""
    plans = [
        plan(options.seed, REGIONS, options.pause_factor)
        for plan in (plan_outages, plan_degradations)
    ]
    faults = [f for plan in plans for f in takewhile(lambda f: f.at < options.seconds, plan)]
    for planned in sorted(faults, key=lambda planned: planned.at):
        print(planned)


def parse_arguments(words: Sequence[str]) -> Namespace:
    """Read the command line; argparse ends the process on a bad one."""
    parser = ArgumentParser(
        prog="python -m chaos",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add_length_options(parser)
    add_workload_options(parser)
    add_output_options(parser)
    return parser.parse_args(words)


def add_length_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=parse_positive,
        default=180.0,
        metavar="N",
        help="how long to send (default: 180); draining comes on top",
    )
    parser.add_argument(
        "--messages",
        type=parse_count,
        metavar="N",
        help="send so many messages instead, however long that takes",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="of the workload and the fault plan (default: 1)",
    )
    parser.add_argument(
        "--ease",
        dest="pause_factor",
        type=parse_positive,
        metavar="N",
        help="make pauses between faults N times as long (default: 2, or 5 with --messages)",
    )
    parser.add_argument("--plan", action="store_true", help="print the fault plan of the seed")
    parser.add_argument("--judge", action="store_true", help="check the last run again")


def add_workload_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rate",
        type=parse_positive,
        metavar="N",
        help="messages a second at most (default: 40, or no limit with --messages)",
    )
    parser.add_argument(
        "--backlog",
        type=parse_count,
        default=2000,
        metavar="N",
        help="send nothing while a queue has more (default: 2000)",
    )
    parser.add_argument(
        "--operation",
        type=parse_count,
        metavar="N",
        help="messages published at once, at most (default: 8, or 25 with --messages)",
    )
    parser.add_argument(
        "--cardinality",
        type=Cardinality,
        choices=list(Cardinality),
        default=Cardinality.ONE,
        help="what a host takes at a time (default: one)",
    )


def add_output_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".chaos"),
        metavar="DIR",
        help="where everything is kept; emptied at the beginning (default: .chaos)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="HTML report (default: DIR/report.html)"
    )
    parser.add_argument("--plain", action="store_true", help="plain lines even on a terminal")


def parse_options(arguments: Namespace) -> ChaosOptions:
    """Return the options the command line asks for, with every path made absolute."""
    data = arguments.data.resolve()
    usual = 1 if arguments.messages else 0
    return ChaosOptions(
        data=data,
        seed=arguments.seed,
        seconds=arguments.seconds,
        messages=arguments.messages,
        rate=arguments.rate or RATES[usual],
        backlog_max=arguments.backlog,
        operation_max=arguments.operation or OPERATIONS[usual],
        pause_factor=arguments.pause_factor or PAUSE_FACTORS[usual],
        cardinality=arguments.cardinality,
        report=(arguments.report or data / "report.html").resolve(),
        is_plain=arguments.plain,
    )


if __name__ == "__main__":
    run_program(main)

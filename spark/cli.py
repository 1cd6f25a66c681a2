"""Command-line arguments that the jobs share, and how a job turns failures into an exit status."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from azure.core.exceptions import AzureError

from shared.domain.errors import InvalidOptions
from shared.domain.producer import ProducerOptions
from shared.settings import InvalidSettings
from spark.console import JobConsole
from spark.failures import JobRefused, SparkFailure, find_root_cause
from spark.incremental import ChangeLimit
from spark.options import ROWS_MAX_DEFAULT
from spark.runtime import INTERRUPTED, MASTER_DEFAULT, JobInterrupted


def run_job(console: JobConsole, job: Callable[[], int]) -> int:
    """The job's exit status; 2 if it was refused or failed, 130 if it was interrupted.

    A failure that a user can act on becomes one line; any other exception is raised.
    """
    try:
        return job()
    except (JobRefused, InvalidSettings) as error:
        return console.report_failure(str(error))
    except AzureError as error:
        line = error.message.partition("\n")[0]
        return console.report_failure(f"the account cannot be reached: {line}")
    except SparkFailure as error:
        return console.report_failure(find_root_cause(error))
    except (KeyboardInterrupt, JobInterrupted):
        console.log("interrupted; what was sent stays sent, running it again completes it")
        return INTERRUPTED


def add_source_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--source", required=True, metavar="PATH", help="the rows, in the format of the mapping")
    mapping = "JSON file that says what the source's columns mean"
    add("--mapping", type=Path, required=True, metavar="FILE", help=mapping)
    add_group_argument(parser)


def add_group_argument(parser: ArgumentParser, default: str | None = None) -> None:
    text = "producer group the numbers belong to"
    parser.add_argument(
        "--group",
        type=parse_group,
        required=default is None,
        default=default,
        metavar="NAME",
        help=text if default is None else f"{text} (default: %(default)s)",
    )


def add_manifest_argument(parser: ArgumentParser, *, required: bool = False) -> None:
    text = "folder in which feeds record what they have fed"
    parser.add_argument("--manifest", required=required, metavar="DIR", help=text)


def add_spark_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="write nothing but why it failed")
    master = "Spark master; local[tasks,tries] on this machine (default: the one spark-submit or "
    master += f"the platform has chosen, else {MASTER_DEFAULT})"
    parser.add_argument("--master", metavar="URL", help=master)


def add_sending_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    rate = "messages per second at most, all tasks together, in the order of their times "
    add("--rate", type=parse_positive_number, metavar="N", help=f"{rate}(default: in bulk)")
    batch = "rows a task holds before it sends them (default: %(default)s)"
    default = ROWS_MAX_DEFAULT
    add("--batch", type=parse_whole_number, default=default, metavar="ROWS", help=batch)
    add("--summary", type=parse_output_file, metavar="FILE", help="write the counts as JSON")
    add("--dry-run", action="store_true", help="do everything but send")


def parse_whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number from 1, not {text!r}")
    return int(text)


def parse_positive_number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"not a number: {text!r}") from None
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"a number above zero, not {text}")
    return number


def parse_change_limit(text: str) -> ChangeLimit:
    try:
        return ChangeLimit.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def parse_group(text: str) -> str:
    try:
        return ProducerOptions(text.strip() and text).producer_group_id
    except InvalidOptions as error:
        raise ArgumentTypeError(str(error)) from None


def parse_output_file(text: str) -> Path:
    """A file that can be written; raises ArgumentTypeError before the work is done for nothing."""
    file = Path(text)
    if file.is_dir() or not file.parent.is_dir():
        raise ArgumentTypeError(f"no file can be written at {text!r}")
    return file


def parse_time(text: str) -> str:
    """A time without a zone, compared as text with events' times; raises ArgumentTypeError."""
    found = parse_iso_time(text)
    if found.tzinfo is not None:
        raise ArgumentTypeError(f"a time without a zone, in the zone of the events: {text!r}")
    return found.isoformat()


def parse_instant(text: str) -> datetime:
    """An instant, in UTC if the text names no zone; raises ArgumentTypeError."""
    found = parse_iso_time(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parse_iso_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"not a time in ISO 8601: {text!r}") from None

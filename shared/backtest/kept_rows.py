"""The kept entries of sessions, from JSON lines or from an archive of Parquet files."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.domain.message import derive_id
from shared.ports import Document
from shared.storage.documents import WRITTEN_FIELD


class RowsRefused(ValueError):
    """A file or folder cannot be read; the text says why and what to do."""


def read_sessions(path: Path) -> dict[str, list[Document]]:
    """The documents of each session in the order of positions; raises RowsRefused.

    A file holds JSON lines: rows of an archive, or documents as the change feed exports them. A
    folder is an archive of Parquet files, for which pyarrow has to be installed.
    """
    sessions: dict[str, list[Document]] = {}
    for number, row in enumerate(
        read_parquet(path) if path.is_dir() else read_json_lines(path), start=1
    ):
        try:
            document = document_of(row)
            sessions.setdefault(document["session"], []).append(document)
        except (KeyError, TypeError, ValueError) as error:
            raise RowsRefused(f"{path}: row {number} is no entry of a journal: {error!r}") from None
    for documents in sessions.values():
        documents.sort(key=lambda one: str(one["id"]))
    return sessions


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
        for batch in rows.to_batches(columns=["document", "written"]):
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
    _ = int(document["id"]), document["session"], document["identities"]
    if WRITTEN_FIELD in document:
        return dict(document)
    written = row["written"]
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    if isinstance(written, datetime):
        written = (written if written.tzinfo else written.replace(tzinfo=UTC)).timestamp()
    return {**document, WRITTEN_FIELD: float(written)}


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

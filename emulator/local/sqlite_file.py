"""SQLite files that name the version of this program that wrote them."""

import sqlite3
from pathlib import Path


class ForeignFile(OSError):
    """The file was not written by this version of the program."""


def check_format(connection: sqlite3.Connection, path: Path | None, expected: int) -> None:
    """Close and raise ForeignFile, unless the file is new or its `user_version` is as expected."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and version != expected:
        connection.close()
        raise ForeignFile(f"{path} was written by another version of this program: remove it")

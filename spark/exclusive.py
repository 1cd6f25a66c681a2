"""Files that appear whole, and under a name that only one writer gets, wherever Spark can write.

HDFS and Azure Data Lake Storage refuse to rename a file to a name that is taken; on a disk a hard
link does the same. A file system of which that is not known is refused by its scheme.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

DISK = "file"
RENAME_REFUSES = ("hdfs", "abfs", "abfss")


class FilesRefused(Exception):
    """The file system cannot promise that a name is given once."""


@dataclass(frozen=True, slots=True)
class Files:
    """The file system of a path, reached from the driver as Spark itself reaches it."""

    spark: SparkSession

    def create(self, place: str, text: str) -> bool:
        """Write a file; False, and nothing changed, when somebody else has taken its name.

        Raises FilesRefused, or what Spark's file system raises (Py4JJavaError).
        """
        target = self.path(place)
        system = self.system(target)
        system.mkdirs(target.getParent())
        # Spark reads over names that begin with a dot.
        draft = self.path(f"{place.rpartition('/')[0]}/.{token_hex(8)}")
        self.write(system, draft, text)
        try:
            return self.publish(system, draft, target)
        finally:
            system.delete(draft, False)

    def require(self, place: str) -> None:
        """Raise FilesRefused unless files can be created at a place."""
        scheme = self.system(self.path(place)).getUri().getScheme()
        if scheme != DISK and scheme not in RENAME_REFUSES:
            known = ", ".join((DISK, *RENAME_REFUSES))
            raise FilesRefused(
                f"{place} is on {scheme}, which is not known to give a name once; use {known}"
            )

    def names(self, place: str) -> list[str]:
        """The names in a folder; a file is alone with its own, and nowhere is nothing."""
        path = self.path(place)
        system = self.system(path)
        if not system.exists(path):
            return []
        return [str(found.getPath().getName()) for found in system.listStatus(path)]

    def publish(self, system: Any, draft: Any, target: Any) -> bool:
        """Give a written file its name, unless the name is taken."""
        if system.getUri().getScheme() != DISK:
            return not system.exists(target) and bool(system.rename(draft, target))
        try:
            Path(local(target)).hardlink_to(local(draft))
        except FileExistsError:
            return False
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise FilesRefused(f"{local(target)}: this disk makes no hard links ({why})") from None
        return True

    def write(self, system: Any, draft: Any, text: str) -> None:
        """Write a file of one's own."""
        stream = system.create(draft, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def path(self, place: str) -> Any:
        """A place as Java has it."""
        return self.java.Path(place)

    def system(self, path: Any) -> Any:
        """The file system of a path."""
        try:
            return path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            raise FilesRefused(f"{path}: {error.java_exception.getMessage()}") from None

    @property
    def java(self) -> Any:
        """Hadoop's classes of files."""
        return self.spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]


def local(path: Any) -> str:
    """A path on a disk."""
    return str(path.toUri().getPath())

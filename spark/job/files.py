"""Create files that appear complete, and under a name that only one writer gets.

HDFS and Azure Data Lake Storage refuse to rename a file to a name that is taken; on a disk a hard
link does the same. Any other file system is refused by its scheme, because it is not known to. The
steps of a manifest there can be documents (steps.py).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from spark.job.failures import JobRefused
from spark.job.runtime import is_one_machine
from spark.job.steps import IN_ACCOUNT

DISK = "file"
RENAME_REFUSES = ("hdfs", "abfs", "abfss")


@dataclass(frozen=True, slots=True)
class SparkFiles:
    """The file systems that Spark can write, used from the driver through Hadoop's classes."""

    spark: SparkSession

    def create(self, place: str, text: str) -> bool:
        """See steps.Steps. Raises JobRefused, or what Hadoop's classes raise (Py4JJavaError)."""
        target = self.parse_path(place)
        system = self.find_system(target)
        system.mkdirs(target.getParent())
        # Spark ignores files whose names begin with a dot, so nobody reads the draft.
        draft = self.parse_path(f"{place.rpartition('/')[0]}/.{token_hex(8)}")
        stream = system.create(draft, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        try:
            if system.getUri().getScheme() == DISK:
                is_new = create_link(draft, target)
            else:
                is_new = not system.exists(target) and bool(system.rename(draft, target))
            # It may be our own, of which we did not hear.
            return is_new or self.read_text(place) == text
        finally:
            system.delete(draft, False)

    def require_exclusive(self, place: str) -> None:
        """Raise JobRefused unless `create` keeps its promise at a place, and all tasks see it."""
        scheme = self.find_system(self.parse_path(place)).getUri().getScheme()
        if scheme != DISK and scheme not in RENAME_REFUSES:
            known = ", ".join((DISK, *RENAME_REFUSES))
            raise JobRefused(
                f"{place} is on {scheme}, which is not known to give a name once; use {known}, or "
                f"keep the steps in the journal's account: {IN_ACCOUNT}{place}"
            )
        self.require_shared(place)

    def require_shared(self, place: str) -> None:
        """Raise JobRefused for a plain path on the disk of each machine of a cluster.

        `file:` says that all of them share the disk.
        """
        scheme = self.find_system(self.parse_path(place)).getUri().getScheme()
        master = self.spark.sparkContext.master
        if scheme == DISK and not place.startswith(f"{DISK}:") and not is_one_machine(master):
            raise JobRefused(
                f"{place} is a path on the disk of each machine of {master}, so what one of them "
                f"writes there no other reads; use {' or '.join(RENAME_REFUSES)}, or {DISK}:// if "
                "all machines share that disk"
            )

    def list_names(self, place: str, after_run: int = 0) -> list[str]:  # noqa: ARG002 - all at once
        """See steps.Steps. For a file it is its own name, for nothing an empty list."""
        path = self.parse_path(place)
        system = self.find_system(path)
        if not system.exists(path):
            return []
        return [str(found.getPath().getName()) for found in system.listStatus(path)]

    def read_text(self, place: str) -> str:
        path = self.parse_path(place)
        stream = self.find_system(path).open(path)
        try:
            java = self.spark.sparkContext._jvm
            text = java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")  # type: ignore[union-attr]
        finally:
            stream.close()
        return str(text)

    def read_texts(self, folders: Sequence[str]) -> list[str]:
        """See steps.Steps: lines of text, read by Spark's tasks."""
        if not folders:
            return []
        lines = self.spark.read.option("recursiveFileLookup", "true").text(list(folders)).collect()
        return [line["value"] for line in lines]

    def remove(self, place: str) -> None:
        """See steps.Steps."""
        path = self.parse_path(place)
        self.find_system(path).delete(path, True)

    def parse_path(self, place: str) -> Any:
        java = self.spark.sparkContext._jvm
        return java.org.apache.hadoop.fs.Path(place)  # type: ignore[union-attr]

    def find_system(self, path: Any) -> Any:
        try:
            return path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration())
        except Py4JJavaError as error:
            raise JobRefused(f"{path}: {error.java_exception.getMessage()}") from None


def create_link(draft: Any, target: Any) -> bool:
    source, name = (str(path.toUri().getPath()) for path in (draft, target))
    try:
        Path(name).hardlink_to(source)
    except FileExistsError:
        return False
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise JobRefused(f"{name}: this disk makes no hard links ({why})") from None
    return True

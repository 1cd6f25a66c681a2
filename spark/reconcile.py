"""Hold the journal against the source it was fed from: `python -m spark.reconcile --help`."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos import CosmosClient
from azure.identity import DefaultAzureCredential
from pyspark.sql import DataFrame, Row

from shared.settings import Connection, InvalidSettings, connection, text
from spark.arguments import add_selection
from spark.books import ENTRIES, Finding, findings
from spark.failures import SparkFailure, root_cause
from spark.judging import first_days, judged
from spark.runtime import INTERRUPTED, Interrupted, SparkUnavailable, spark_session
from spark.sources import SourceRefused, located, read_flights
from spark.transforms import events

QUERY = "SELECT c.session, c.id, c.status, c.covers FROM c WHERE c.kind = 'entry'"
EXAMPLES = 5
UNBALANCED, REFUSED = 1, 2

DESCRIPTION = """\
Compare what a source holds with what the journal holds: missing, extra, repeated, out of order and
different events. The exit status is 0 when the books balance, 1 when they do not, 2 when they could
not be read. The journal is found by the settings Cosmos, LOCKSTEP_DATABASE and LOCKSTEP_JOURNAL;
it is read as it stands, so let the queues drain first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile; the exit status says whether the books balance."""
    chosen = parser().parse_args(arguments)
    try:
        return reconcile(chosen, os.environ)
    except (InvalidSettings, SourceRefused, SparkUnavailable) as error:
        return refused(str(error))
    except AzureError as error:
        return refused(f"the journal cannot be read: {error.message.partition('\n')[0]}")
    except SparkFailure as error:
        return refused(root_cause(error))
    except (KeyboardInterrupt, Interrupted):
        refused("interrupted")
        return INTERRUPTED


def parser() -> ArgumentParser:
    """What the command line takes."""
    described = ArgumentParser(prog="python -m spark.reconcile", description=DESCRIPTION)
    add_selection(described)
    return described


def reconcile(chosen: Namespace, settings: Mapping[str, str]) -> int:
    """Read both sides, compare them, and say what was found."""
    with (
        stored_entries(settings) as journal,
        located(chosen.source) as path,
        spark_session(chosen.master) as spark,
    ):
        flights = first_days(read_flights(spark, path), chosen.days)
        rows = events(judged(flights), chosen.group).persist()
        entries = spark.read.schema(ENTRIES).json(str(journal))
        found = findings(rows, entries, chosen.group).persist()
        return told(rows.count(), found)


@contextmanager
def stored_entries(settings: Mapping[str, str]) -> Iterator[Path]:
    """A file of JSON lines with the journal's entries, there while in the context."""
    with TemporaryDirectory(prefix="lockstep-journal-") as folder:
        file = Path(folder, "entries.jsonl")
        with file.open("w") as lines:
            lines.writelines(json.dumps(entry) + "\n" for entry in read_entries(settings))
        yield file


def read_entries(settings: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Every entry of every session, a page at a time; raises AzureError."""
    with account(connection(settings, "Cosmos", "accountEndpoint")) as client:
        database = client.get_database_client(text(settings, "LOCKSTEP_DATABASE"))
        journal = database.get_container_client(text(settings, "LOCKSTEP_JOURNAL"))
        yield from journal.query_items(QUERY, enable_cross_partition_query=True)


def account(where: Connection) -> CosmosClient:
    """A client for a connection string, or for an endpoint reached with an identity."""
    if where.connection_string is not None:
        return CosmosClient.from_connection_string(where.connection_string)
    identity = DefaultAzureCredential(managed_identity_client_id=where.client_id)
    return CosmosClient(str(where.endpoint), identity)


def told(expected: int, found: DataFrame) -> int:
    """Print the count of every kind of finding with a few examples; the exit status for it."""
    counts = {row["finding"]: row["count"] for row in found.groupBy("finding").count().collect()}
    lines = [f"{expected} events expected"]
    for finding in Finding:
        lines.append(f"{counts.get(finding, 0)} {finding}")
        examples = found.where(found["finding"] == finding).limit(EXAMPLES).collect()
        lines += [f"  {named(row)}" for row in examples]
    lines.append("the books do not balance" if counts else "the books balance")
    sys.stdout.write("\n".join(lines) + "\n")
    return UNBALANCED if counts else 0


def named(row: Row) -> str:
    """A finding's event, as one looks it up."""
    return f"session {row['session']} number {row['sequence']} id {row['id']}"


def refused(line: str) -> int:
    """Say why the books could not be compared; the exit status for it."""
    sys.stderr.write(f"reconcile: {line}\n")
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())

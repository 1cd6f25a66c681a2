"""The archive of a journal: complete, once on reading, and without what was erased."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shared.domain.journal import KeptInput
from shared.domain.resolution import ResolutionAction
from shared.storage.entries import decode_entry
from spark import archive
from spark.read.archive import read_archive, read_versions
from tests.sized_outputs import WRITER, writing
from tests.spark.bookings import DriverKilled
from tests.spark.stopped_journal import Stopped, stopped_journal
from tests.world import message

pytestmark = pytest.mark.wire

LATE = archive.LATE_SECONDS
RELEASE = Path(__file__).parents[1] / "releases" / "2026-11-27.json"


@dataclass
class Archived:
    """A journal in an account whose clock stands still, and its archive."""

    stopped: Stopped
    spark: SparkSession
    place: str
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: str, place: str = "") -> int:
        """A run of the job; its exit status."""
        return archive.main(["--to", place or self.place, "--quiet", *arguments])

    def run_later(self, *arguments: str) -> str:
        """What a run says that has all that was written so far."""
        self.stopped.seconds += LATE
        assert self.run(*arguments) == 0
        return self.capsys.readouterr().out

    def entries(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """What a reader finds of each entry: the documents of each life of its session."""
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in read_archive(self.spark, self.place).orderBy("life").collect():
            documents = found.setdefault((row["session"], row["position"]), [])
            documents.append(json.loads(row["document"]))
        return found

    def text(self) -> str:
        """All that the files of the archive say, the rows that nobody reads among them."""
        return "".join(row["document"] for row in read_versions(self.spark, self.place).collect())


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    with stopped_journal() as stopped:
        yield stopped


@pytest.fixture
def archived(
    spark: SparkSession,
    stopped: Stopped,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Archived:
    monkeypatch.setattr(archive, "open_spark", lambda _master: nullcontext(spark))
    for name, value in stopped.settings.items():
        monkeypatch.setenv(name, value)
    return Archived(stopped, spark, str(tmp_path / "archive"), capsys)


def test_a_run_adds_what_was_written_as_it_is_stored(archived: Archived) -> None:
    archived.stopped.take(message(0, kind="account.bill"), message(0, session="acc-8"))
    archived.stopped.take(writing([3], remember=20_000))
    # What an older release wrote says nothing of inputs.
    documents = json.loads(RELEASE.read_text("utf-8"))["documents"]
    old = next(d for d in documents if d["kind"] == "entry") | {"session": "of old"}
    archived.stopped.journal.upsert_item(old)
    archived.run_later()

    found = archived.entries()
    assert found.pop(("of old", int(old["id"]))) == [old]
    assert decode_entry(old).taken == (None,)
    assert found == archived.stopped.expected()
    assert decode_entry(found[WRITER, 0][0]).taken == (KeptInput(writing([3], remember=20_000)),)


@pytest.mark.proof
@pytest.mark.parametrize("killed_at", ["append_rows", "end_run"])
def test_when_a_run_is_killed_the_next_one_loses_and_doubles_nothing(
    archived: Archived, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    with archived.stopped.world.without("west"):
        archived.stopped.take(message(0, kind="account.bill"), message(0, session="acc-8"))
    archived.run_later()
    archived.stopped.sweep()
    archived.stopped.take(message(1))
    done = getattr(archive, killed_at)

    def die(*given: Any) -> None:
        if killed_at != "end_run":
            done(*given)
        raise DriverKilled

    with monkeypatch.context() as patch:
        patch.setattr(archive, killed_at, die)
        with pytest.raises(DriverKilled):
            archived.run_later()
    archived.stopped.take(message(2))
    archived.run_later()

    assert archived.entries() == archived.stopped.expected()


@pytest.mark.proof
def test_when_a_session_is_erased_between_two_runs_no_file_has_its_data(
    archived: Archived,
) -> None:
    archived.stopped.take(message(0, 4_711), message(1, 4_712), message(0, 99, session="acc-8"))
    archived.run_later()
    assert "4711" in archived.text()
    archived.stopped.resolve("acc-7", ResolutionAction.ERASE)
    archived.stopped.take(message(2, 5_000))

    assert "2 erased" in archived.run_later()

    assert "471" not in archived.text()
    assert "99" in archived.text()
    assert archived.entries() == archived.stopped.expected()
    # The entry that erased is written anew when outputs are acknowledged, and erases nothing more.
    archived.stopped.take(message(3, 6_000))
    assert "0 erased" in archived.run_later()
    assert archived.entries() == archived.stopped.expected()


@pytest.mark.proof
def test_when_a_run_is_killed_while_it_erases_the_next_one_ends_it(
    archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived.stopped.take(message(0, 4_711), message(0, 99, session="acc-8"))
    archived.run_later()
    archived.stopped.resolve("acc-7", ResolutionAction.ERASE)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "empty_folder", lambda *_: die())
        with pytest.raises(DriverKilled):
            archived.run_later()
    assert "4711" in archived.text()

    archived.run_later()

    assert "4711" not in archived.text()
    assert archived.entries() == archived.stopped.expected()


@pytest.mark.proof
def test_a_name_that_is_used_again_begins_another_life(archived: Archived) -> None:
    archived.stopped.take(message(0, 1_111), message(1, 1_112))
    archived.run_later()
    first = archived.stopped.expected()
    # As compaction removes a session that has ended.
    archived.stopped.world.journal.partitions["acc-7"].clear()
    archived.stopped.store()
    archived.stopped.world.east.worker.forget()
    archived.stopped.seconds += 21 * 24 * 3600
    archived.stopped.take(message(0, 2_222))
    archived.run_later()

    found = archived.entries()
    assert found["acc-7", 0] == first["acc-7", 0] + archived.stopped.expected()["acc-7", 0]
    assert found["acc-7", 1] == first["acc-7", 1]
    # Erasing it reaches what its name held before.
    archived.stopped.resolve("acc-7", ResolutionAction.ERASE)
    archived.run_later()
    assert archived.entries() == archived.stopped.expected()
    assert not [amount for amount in ("1111", "1112", "2222") if amount in archived.text()]


@pytest.mark.proof
def test_a_session_that_the_journal_has_no_more_is_erased_by_name(archived: Archived) -> None:
    archived.stopped.take(message(0, 4_711), message(0, 99, session="acc-8"))
    archived.run_later()
    erase = ("--erase", "acc-7", "--who", "Ada", "--why", "asked to be forgotten")
    assert archived.run(*erase) == 2
    assert "erase it there" in archived.capsys.readouterr().err
    archived.stopped.world.journal.partitions["acc-7"].clear()
    archived.stopped.store()

    assert "1 erased" in archived.run_later(*erase)

    assert "4711" not in archived.text()
    assert '"who": "Ada"' in archived.text()
    assert archived.entries() == archived.stopped.expected()


def die() -> None:
    raise DriverKilled

"""Reconciliation as a user runs it, from an exported journal: status, report, page, and replay."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark import reconcile, replay
from spark.feeding.manifest import Manifest
from spark.feeding.numbering import number_facts
from spark.read.journal import read_journal
from spark.replay import read_findings, select_events, select_missing
from spark.schemas import EVENTS
from tests.spark.bookings import DOCUMENT, GROUP, assert_same_table, fact, facts_of

FACTS_FED = [fact(s, f"k{n}", f"{n:02}", n) for s in ("acc-1", "acc-2", "acc<3") for n in range(4)]


def entry(session: str, position: int, number: int, **changes: Any) -> dict[str, Any]:
    """An entry of the journal as the change feed tells it, for the fact with a number."""
    body = f'{{"amount":{number}}}'
    identity = {
        "id": hashlib.sha256(f"{GROUP}\n{session}\n{number}".encode()).hexdigest()[:32],
        "type": "account.add",
        "digest": hashlib.sha256(f"account.add\0{body}".encode()).hexdigest(),
        "group": GROUP,
        "sequence": number,
    }
    document = {"session": session, "id": f"{position:012d}", "kind": "entry", "_ts": position}
    return document | {"status": "completed", "identities": [identity | changes]}


def journal(*amiss: dict[str, Any]) -> list[dict[str, Any]]:
    """Two balanced sessions and what is said of the third; with a claim and other documents."""
    good = [entry(s, n, n) for s in ("acc-1", "acc-2") for n in range(4)]
    claim = entry("acc-1", 1, 1) | {"status": "working", "_ts": 0}
    return [{"session": "acc-1", "id": "genesis", "kind": "genesis"}, claim, *good, *amiss]


def test_an_export_of_an_older_release_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    document = entry("acc-1", 0, 0)
    document["covers"] = document.pop("identities")
    (tmp_path / "journal.json").write_text(json.dumps(document))

    with pytest.raises(Exception, match=r"older release .* docs/upgrade\.md"):
        read_journal(spark, str(tmp_path / "journal.json")).collect()


@pytest.fixture
def fed(spark: SparkSession, jobs_here: None, tmp_path: Path) -> Path:
    """A folder with a manifest of what was fed, and the empty source it came from."""
    manifest = Manifest(spark, str(tmp_path / "manifest"))
    plan = number_facts(facts_of(spark, FACTS_FED), GROUP)
    manifest.mark_sent(manifest.bind(1, manifest.write_plan(1, plan), None))
    (tmp_path / "source.json").write_text("")
    mapping = DOCUMENT | {"columns": {"account": "string", "amount": "int"}}
    mapping |= {"key": ["amount"], "order": ["amount"]}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    return tmp_path


def balance(
    folder: Path,
    documents: list[dict[str, Any]],
    *,
    by_manifest: bool = True,
    words: Sequence[str] = (),
) -> int:
    """Reconcile the manifest, or the source alone, with a journal; the exit status."""
    name = f"journal-{len(list(folder.glob('journal-*')))}.json"
    (folder / name).write_text("\n".join(json.dumps(document) for document in documents) + "\n")
    words = [*words, f"--source={folder / 'source.json'}", f"--mapping={folder / 'mapping.json'}"]
    words += [f"--manifest={folder / 'manifest'}"] if by_manifest else []
    words += [f"--journal={folder / name}", f"--report={folder / 'report'}", f"--group={GROUP}"]
    return reconcile.main([*words, f"--page={folder / 'page.html'}"])


def test_what_is_amiss_is_reported_by_session_and_only_that(
    spark: SparkSession, fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third = [entry("acc<3", 0, 0), entry("acc<3", 1, 3), entry("acc<3", 2, 2, digest="0" * 64)]

    assert balance(fed, journal(*third)) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "12 events expected"
    counted = [line for line in lines if line[0].isdigit()][1:]
    assert counted == [
        "1 missing",
        "0 faulted or skipped",
        "0 waiting behind a fault",
        "0 extra",
        "0 wrong session",
        "0 repeated",
        "1 out of order",
        "1 different content",
        "0 in the source twice",
    ]
    books = spark.read.parquet(str(fed / "report" / "sessions")).where("missing > 0").collect()
    assert [(row["session"], row["expected"], row["effects"]) for row in books] == [("acc<3", 4, 3)]
    page = (fed / "page.html").read_text()
    assert "<h1>Source and journal differ</h1>" in page
    assert "3 findings in 1 of 3 sessions." in page
    cells = page.rpartition("acc&lt;3")[2].partition("</tr>")[0]
    assert re.findall(r">(\d+)<", cells) == [*"43111"]
    assert "digest 00000000..., not " in page
    assert "acc-1" not in page
    assert "acc<3" not in page

    manifest = Manifest(spark, str(fed / "manifest"))
    archive = manifest.read_fed(GROUP, manifest.read_history()).select(*EVENTS.names)
    again = select_missing(archive, read_findings(spark, str(fed / "report"))).collect()
    assert [(row["session"], row["sequence"]) for row in again] == [("acc<3", 1)]


@pytest.mark.proof
def test_if_source_and_journal_agree_the_exit_status_is_0(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert balance(fed, journal(*(entry("acc<3", n, n) for n in range(4)))) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "source and journal agree"
    page = (fed / "page.html").read_text()
    assert "<h1>Source and journal agree</h1>" in page
    assert "Every event of the source has its one effect" in page
    assert "<h2>The first" not in page


@pytest.mark.proof
def test_only_what_was_fed_within_a_time_is_asked_for(
    spark: SparkSession,
    fed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    later = Manifest(spark, str(fed / "manifest"))
    facts = facts_of(spark, [fact("acc-1", f"k{n}", f"{n:02}", n) for n in (4, 5)])
    numbered = number_facts(facts.withColumn("begin", F.lit(4)), GROUP, begin="begin")
    monkeypatch.setattr("spark.feeding.manifest.format_now", lambda: "2036-02-01T00:00:00+00:00")
    later.mark_sent(later.bind(2, later.write_plan(2, numbered), None))
    # The older run's entries are compacted, but for one.
    of_later = [entry("acc-1", 3, 3), entry("acc-1", 4, 4), entry("acc-1", 5, 5)]

    def differences(documents: list[dict[str, Any]], *words: str) -> list[str]:
        balance(fed, documents, words=words)
        lines = capsys.readouterr().out.splitlines()
        return [lines[0], *(line for line in lines[1:] if line[0] in "123456789")]

    since = "--fed-since=2036-02-01T01:00:00+01:00"
    assert differences(of_later) == ["14 events expected", "11 missing"]
    assert differences(of_later, since) == ["2 events expected"]
    assert differences(of_later[:2], since) == ["2 events expected", "1 missing"]
    stranger = entry("acc-1", 6, 9)
    assert differences([*of_later, stranger], since) == ["2 events expected", "1 extra"]
    disorder = [entry("acc-1", 4, 5), entry("acc-1", 5, 4)]
    assert differences(disorder, since) == ["2 events expected", "1 out of order"]
    until = "--fed-until=2036-02-01"
    assert differences(journal(), until) == ["12 events expected", "4 missing"]
    assert differences([], since, "--fed-until=2036-02-01") == ["0 events expected"]
    books = spark.read.parquet(str(fed / "report" / "sessions")).collect()
    assert [row for row in books if row["expected"] or row["effects"]] == []


@pytest.mark.proof
def test_a_time_of_feeding_needs_the_manifest(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert balance(fed, journal(), by_manifest=False, words=["--fed-since=2036-02-01"]) == 2
    assert "would have no effect without --manifest" in capsys.readouterr().err


@pytest.mark.proof
def test_what_a_source_says_twice_is_a_finding_and_other_rejects_are_only_told(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"account": "acc-1", "amount": n} for n in (0, 1, 2, 2, 3, None)]
    (fed / "source.json").write_text("\n".join(json.dumps(row) for row in rows) + "\n")

    assert balance(fed, [entry("acc-1", n, n) for n in range(4)], by_manifest=False) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "4 events expected",
        "  and 1 rows rejected: missing amount",
        "  and 1 rows rejected: repeated key",
    ]
    found = [line for line in lines[3:] if not line.startswith("0 ")]
    assert found == [
        "1 in the source twice",
        '  session acc-1: {"account":"acc-1","amount":2}',
        "source and journal differ",
    ]


@pytest.mark.proof
def test_an_export_with_a_broken_line_is_refused_and_not_read_around(
    fed: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = [entry("acc<3", n, n) for n in range(4)]
    (fed / "source.json").write_text("{}\n")
    words = [f"--{name}={fed / name}.json" for name in ("source", "mapping")]
    (fed / "export.json").write_text("\n".join(map(json.dumps, journal(*good))) + '\n{"session":\n')

    assert reconcile.main([*words, f"--group={GROUP}", f"--journal={fed / 'export.json'}"]) == 2

    said = capfd.readouterr().err
    assert "export.json" in said
    assert "Unexpected end-of-input" in said


def test_a_choice_of_sessions_and_times_is_replayed_as_it_was(spark: SparkSession) -> None:
    rows = [
        (session, GROUP, n, "t", "{}", f"{session}-{n}", f"2026-01-0{n + 1}T00:00:00")
        for session in ("a", "b")
        for n in range(4)
    ]
    archive = spark.createDataFrame(rows, EVENTS)

    found = select_events(archive, ["b"], "2026-01-02", "2026-01-04")

    assert_same_table(found, spark.createDataFrame(rows[5:7], EVENTS))
    assert_same_table(select_events(archive, None, None, None), archive)


def test_a_replay_of_nothing_is_refused_and_a_dry_one_counts(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--manifest={fed / 'manifest'}", f"--group={GROUP}", "--dry-run"]

    assert replay.main([*words, "--session=nobody"]) == 2
    assert "has no such event of 'bank'" in capsys.readouterr().err
    assert replay.main([*words, "--session=acc-1", "--session=acc-2"]) == 0
    assert capsys.readouterr().out == "8 events chosen, 0 sent, 0 copies pending\n"


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("--since=yesterday", "not a time in ISO 8601: 'yesterday'"),
        ("--until=2026-01-02T00:00:00+02:00", "a time without a zone"),
        ("--summary=/no/such/folder/sum.json", "no file can be written at"),
        ("--group=$saga", "is reserved"),
        (f"--group={'g' * 129}", "the group id has 129 characters, over 128"),
    ],
)
def test_a_word_that_cannot_be_meant_is_refused_before_the_work(
    word: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        replay.main(["--manifest=m", "--group=g", "--all", word])

    assert left.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_replay_of_everything_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        replay.main(["--manifest=m", "--group=g"])

    assert "or say --all" in capsys.readouterr().err

"""What the processes of a run wrote becomes the history that is checked."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from proof.chaos.checker.history import Baseline, ErrorReport, HandlerRun, SessionHead
from proof.chaos.checker.promises import check_history
from proof.chaos.checker.reading import read_history
from proof.chaos.messages import (
    CHAIN_START,
    EFFECTFUL,
    EFFECTS_QUEUE,
    ERROR_QUEUE,
    FAILING,
    PURE,
    extend_chain,
    hash_content,
)
from proof.chaos.options import RunFiles
from proof.chaos.records import Record
from proof.chaos.workload import PublishOperation, WorkloadMessage

MESSAGES = (
    WorkloadMessage("a", PURE, "{}"),
    WorkloadMessage("b", FAILING, "{}"),
    WorkloadMessage("c", EFFECTFUL, "{}"),
)
FIRST = extend_chain(CHAIN_START, "a", hash_content(PURE, b"{}"))
SECOND = extend_chain(FIRST, "c", hash_content(EFFECTFUL, b"{}"))

DEPTHS = dict.fromkeys(("active", "locked", "scheduled", "deferred", "dead_lettered"), 0)


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    """A run of three messages in one session, and one that was begun and never told safe."""
    files = RunFiles(tmp_path)
    first, second = (
        PublishOperation("N1", 0, MESSAGES),
        PublishOperation("N1", 3, (WorkloadMessage("d", PURE, "{}"),)),
    )
    write(files.workload, first.line(), second.line())
    write(
        files.ledger,
        {"at": 1.0, "what": "begun", "session": "N1", "first": 0, "count": 3},
        {"at": 2.0, "what": "safe", "session": "N1", "first": 0, "count": 3},
        {"at": 3.0, "what": "begun", "session": "N1", "first": 3, "count": 1},
    )
    write(files.received, *(line for region in ("east", "west") for line in copies(region)))
    write(files.runs, {"at": 2.0, "session": "N1", "id": "c", "key": "k", "process": 1})
    write(
        files.events,
        {"kind": "baseline", "at": 9.0, "counts": {"abandon in east": 0}},
        {"kind": "refusal", "at": 12.0, "components": ["servicebus.west"]},
    )
    final_state = {
        "depths": {region: {"lockstep": DEPTHS} for region in ("east", "west")},
        "unfinished": {"pending": []},
        "kinds": {"entry": 3, "ledger": 1, "genesis": 1},
        "heads": {"N1": {"place": 2, "chain": SECOND}, "unheard-of": {}},
        "old_entries": {},
    }
    files.final_state.write_text(json.dumps(final_state))
    return files


def copies(region: str) -> list[dict[str, object]]:
    """What came out of a region: two effects, the second handed out twice, and a report."""
    first = effect(region, 1, "a", 0, 0, FIRST, hash_content(PURE, b"{}"))
    second = effect(region, 3, "c", 1, 2, SECOND, hash_content(EFFECTFUL, b"{}"))
    report = {"message": {"id": "b"}, "reason": "it was sent to fail"}
    return [first, second, second, line(region, ERROR_QUEUE, 1, "r", report)]


def effect(
    region: str, number: int, name: str, place: int, sequence: int, chain: str, content: str
) -> dict[str, object]:
    body = {"session": "N1", "place": place, "sequence": sequence, "id": name, "chain": chain}
    return line(region, EFFECTS_QUEUE, number, f"of {name}", {**body, "digest": content})


def line(
    region: str, queue: str, number: int, name: str, body: Mapping[str, object]
) -> dict[str, object]:
    where = {"at": 5.0, "region": region, "queue": queue, "number": number, "session": "N1"}
    return where | {"id": name, "type": "any", "fingerprint": name, "body": json.dumps(body)}


def write(path: Path, *lines: dict[str, object]) -> None:
    with Record(path) as record:
        record.append(*lines)


def test_every_file_has_its_part_in_the_history(files: RunFiles) -> None:
    history = read_history(files)

    assert [(s.id, s.sequence, s.is_poisoned, s.is_begun, s.safe_at) for s in history.sent] == [
        ("a", 0, False, True, 2.0),
        ("b", 1, True, True, 2.0),
        ("c", 2, False, True, 2.0),
        ("d", 3, False, True, None),
    ]
    assert [(s.region, s.number, s.id) for s in history.seen] == [
        ("east", 1, "a"),
        ("east", 3, "c"),
        ("west", 1, "a"),
        ("west", 3, "c"),
    ]
    assert history.reports[0] == ErrorReport("east", "r", "r", "N1", "b", "it was sent to fail")
    assert history.runs == (HandlerRun(2.0, "N1", "c", "k"),)
    assert history.heads == {
        "N1": SessionHead(2, SECOND),
        "unheard-of": SessionHead(0, CHAIN_START),
    }
    assert history.refusing == {"west"}
    assert history.baseline == Baseline(9.0, {"abandon in east": 0})
    assert history.left.queued == {"east/lockstep": 0, "west/lockstep": 0}
    assert [f for f in check_history(history) if f.violations] == []

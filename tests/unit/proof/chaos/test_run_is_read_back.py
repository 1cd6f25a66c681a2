"""What the processes of a run wrote becomes the history that is checked."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from proof.chaos.checker.history import RunHistory
from proof.chaos.checker.reading import read_history
from proof.chaos.messages import EFFECTS_QUEUE, ERROR_QUEUE
from proof.chaos.options import RunFiles
from proof.chaos.records import Record
from proof.chaos.workload import PublishOperation, WorkloadMessage
from tests.unit.proof.chaos.histories import BODY, flawless, kind_of

EFFECT = ("session", "place", "sequence", "id", "digest", "chain")


def write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with Record(path) as record:
        record.append(*lines)


def write_run(files: RunFiles, history: RunHistory) -> None:
    """Write what the processes of a run would have written, every effect handed out twice."""
    sent = [(one, {"session": one.session, "first": one.sequence}) for one in history.sent]
    safe = [
        {"at": one.safe_at, "what": "safe", **at, "count": 1} for one, at in sent if one.is_safe
    ]
    messages = (WorkloadMessage(one.id, kind_of(one.sequence), BODY) for one, _ in sent)
    operations = (
        PublishOperation(one.session, one.sequence, (message,)).line()
        for (one, _), message in zip(sent, messages, strict=True)
    )
    write(files.workload, operations)
    write(
        files.ledger, [*({"at": 1.0, "what": "begun", **at, "count": 1} for _, at in sent), *safe]
    )
    effects = [
        {"queue": EFFECTS_QUEUE, "body": {name: one[name] for name in EFFECT}, **one}
        | {"id": one["output"]}
        for one in map(asdict, history.seen)
    ]
    reports = [
        {
            "queue": ERROR_QUEUE,
            "body": {"message": {"id": one["of"]}, "reason": one["reason"]},
            **one,
        }
        | {"id": one["report"]}
        for one in map(asdict, history.reports)
    ]
    received = [*effects, *effects, *reports]
    write(files.received, ({**line, "body": json.dumps(line["body"])} for line in received))
    write(files.runs, map(asdict, history.runs))
    baseline = {"at": history.baseline.until, "counts": history.baseline.counts}
    refusals = [f"servicebus.{region}" for region in history.refusing]
    write(
        files.events,
        [{"kind": "baseline", **baseline}, {"kind": "refusal", "components": refusals}],
    )
    depths: dict[str, dict[str, dict[str, int]]] = {}
    states = dict.fromkeys(("active", "locked", "scheduled", "deferred"), 0)
    for name, count in history.left.queued.items():
        region, _, queue = name.partition("/")
        dead = {"dead_lettered": history.left.dead[name]}
        depths.setdefault(region, {})[queue] = {**states, "active": count, **dead}
    heads = {session: asdict(head) for session, head in history.heads.items()}
    left = asdict(history.left)
    files.final_state.write_text(json.dumps({**left, "depths": depths, "heads": heads}))


def test_every_file_has_its_part_in_the_history(tmp_path: Path) -> None:
    history = flawless()
    *others, last = history.sent
    left = replace(
        history.left,
        queued={"east/lockstep": 2, "west/lockstep": 0},
        dead={"east/lockstep": 0, "west/lockstep": 3},
    )
    whole = replace(
        history,
        sent=(*others, replace(last, safe_at=None)),
        seen=tuple(sorted(history.seen, key=attrgetter("region", "number"))),
        refusing=frozenset({"west"}),
        left=left,
    )
    files = RunFiles(tmp_path)

    write_run(files, whole)

    assert read_history(files) == whole

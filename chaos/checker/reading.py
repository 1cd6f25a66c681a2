"""From the files of a run to the history that is checked."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from chaos.checker.history import (
    Baseline,
    EffectCopy,
    ErrorReport,
    HandlerRun,
    Leftovers,
    RunHistory,
    SentMessage,
    SessionHead,
)
from chaos.messages import (
    CHAIN_START,
    EFFECTFUL,
    EFFECTS_QUEUE,
    ERROR_QUEUE,
    POISONED,
    hash_content,
)
from chaos.options import RunFiles
from chaos.records import read_lines

STATES = ("active", "locked", "scheduled", "deferred")

type Line = Mapping[str, Any]


def read_history(files: RunFiles) -> RunHistory:
    """Read everything that a run left; raises OSError or ValueError for what cannot be read."""
    left = json.loads(files.final_state.read_text(encoding="utf-8"))
    seen, reports = read_received(files.received)
    return RunHistory(
        regions=tuple(left["depths"]),
        sent=tuple(read_sent(files.workload, files.ledger)),
        seen=tuple(sort_arrivals(seen)),
        reports=tuple(reports),
        runs=tuple(read_runs(files.runs)),
        heads={session: read_head(state) for session, state in left["heads"].items()},
        left=read_left(left),
        baseline=read_baseline(files.events),
    )


def read_sent(workload: Path, ledger: Path) -> Iterator[SentMessage]:
    """The messages of the workload, with what the sender's ledger says of them."""
    begun: set[tuple[str, int]] = set()
    safe: dict[tuple[str, int], float] = {}
    for line in read_lines(ledger):
        places = {(line["session"], line["first"] + n) for n in range(line["count"])}
        if line["what"] == "begun":
            begun |= places
        else:
            safe |= dict.fromkeys(places, line["at"])
    for operation in read_lines(workload):
        for sequence, message in enumerate(operation["messages"], start=operation["first"]):
            message_id, kind, body = message
            place = (operation["session"], sequence)
            yield SentMessage(
                *place,
                id=message_id,
                digest=hash_content(kind, body.encode()),
                is_poisoned=kind in POISONED,
                calls_outside=kind == EFFECTFUL,
                is_begun=place in begun,
                safe_at=safe.get(place),
            )


def read_received(path: Path) -> tuple[list[EffectCopy], list[ErrorReport]]:
    """Effects and error reports, each in the order in which they came out."""
    seen: list[EffectCopy] = []
    reports: list[ErrorReport] = []
    for line in read_lines(path):
        match line["queue"]:
            case str(queue) if queue == EFFECTS_QUEUE:
                seen.append(read_effect(line))
            case str(queue) if queue == ERROR_QUEUE:
                reports.append(read_report(line))
            case unknown:
                raise ValueError(f"nobody reads the queue {unknown}")
    return seen, reports


def sort_arrivals(seen: Iterable[EffectCopy]) -> list[EffectCopy]:
    """What was handed out several times once, as it was seen first, and in the order of arrival."""
    first: dict[tuple[str, int], EffectCopy] = {}
    for one in seen:
        first.setdefault((one.region, one.number), one)
    return [first[place] for place in sorted(first)]


def read_effect(line: Line) -> EffectCopy:
    body = json.loads(line["body"])
    return EffectCopy(
        at=line["at"],
        region=line["region"],
        number=line["number"],
        output=line["id"],
        fingerprint=line["fingerprint"],
        **body,
    )


def read_report(line: Line) -> ErrorReport:
    """One copy of an error report; what is not about a message names none."""
    body = json.loads(line["body"])
    return ErrorReport(
        region=line["region"],
        report=line["id"],
        fingerprint=line["fingerprint"],
        session=line["session"],
        of=body.get("message", {}).get("id"),
        reason=body.get("reason", ""),
    )


def read_runs(path: Path) -> Iterator[HandlerRun]:
    for line in read_lines(path):
        yield HandlerRun(line["at"], line["session"], line["id"], line["key"])


def read_head(state: Line) -> SessionHead:
    return SessionHead(state.get("place", 0), state.get("chain", CHAIN_START))


def read_left(final_state: Line) -> Leftovers:
    queues = {
        f"{region}/{queue}": depth
        for region, depths in final_state["depths"].items()
        for queue, depth in depths.items()
    }
    return Leftovers(
        queued={name: sum(depth[one] for one in STATES) for name, depth in queues.items()},
        dead={name: depth["dead_lettered"] for name, depth in queues.items()},
        unfinished={what: tuple(names) for what, names in final_state["unfinished"].items()},
        kinds=final_state["kinds"],
        old_entries=final_state["old_entries"],
    )


def read_baseline(events: Path) -> Baseline:
    """The stretch without faults; a run that never came to its end has an empty one."""
    for line in read_lines(events):
        if line["kind"] == "baseline":
            return Baseline(line["at"], line["counts"])
    return Baseline(0.0, {})

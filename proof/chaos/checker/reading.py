"""From the files of a run to the history that is checked."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proof.chaos import messages
from proof.chaos.checker import history
from proof.chaos.options import RunFiles
from proof.chaos.records import read_lines

# Queues count a message as in one of these states as long as it is to be handled.
STATES = ("active", "locked", "scheduled", "deferred")


def read_history(files: RunFiles) -> history.RunHistory:
    """Read everything that a run left; raises OSError or ValueError for what cannot be read."""
    state = json.loads(files.final_state.read_text(encoding="utf-8"))
    effects, reports = read_received(files.received)
    events = list(read_lines(files.events))
    # A run that never came to its end has an empty baseline.
    baselines = (line for line in events if line["kind"] == "baseline")
    baseline: dict[str, Any] = next(baselines, {"at": 0.0, "counts": {}})
    refusals = [line["components"] for line in events if line["kind"] == "refusal"]
    refusing = frozenset(name.removeprefix("servicebus.") for names in refusals for name in names)
    return history.RunHistory(
        regions=tuple(state["depths"]),
        refusing=refusing,
        sent=tuple(read_sent(files.workload, files.ledger)),
        seen=tuple(sort_arrivals(effects)),
        reports=tuple(reports),
        runs=tuple(
            history.HandlerRun(line["at"], line["session"], line["id"], line["key"])
            for line in read_lines(files.runs)
        ),
        heads={
            name: history.SessionHead(found["place"], found["chain"])
            for name, found in state["heads"].items()
        },
        left=read_left(state),
        baseline=history.Baseline(baseline["at"], baseline["counts"]),
    )


def read_sent(workload: Path, ledger: Path) -> Iterator[history.SentMessage]:
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
            yield history.SentMessage(
                *place,
                id=message_id,
                digest=messages.hash_content(kind, body.encode()),
                is_poisoned=kind in messages.POISONED,
                calls_outside=kind == messages.EFFECTFUL,
                is_begun=place in begun,
                safe_at=safe.get(place),
            )


def read_received(path: Path) -> tuple[list[history.EffectCopy], list[history.ErrorReport]]:
    """Read effects and error reports, each in the order in which they came out."""
    effects: list[history.EffectCopy] = []
    reports: list[history.ErrorReport] = []
    for line in read_lines(path):
        body = json.loads(line["body"])
        copy = {"region": line["region"], "fingerprint": line["fingerprint"]}
        match line["queue"]:
            case messages.EFFECTS_QUEUE:
                arrival = {"at": line["at"], "number": line["number"], "output": line["id"]}
                effects.append(history.EffectCopy(**copy, **arrival, **body))
            case messages.ERROR_QUEUE:
                # A report that is not about a message names none.
                of, reason = body.get("message", {}).get("id"), body.get("reason", "")
                about = {"report": line["id"], "session": line["session"]}
                reports.append(history.ErrorReport(**copy, **about, of=of, reason=reason))
            case unknown:
                raise ValueError(f"nobody reads the queue {unknown}")
    return effects, reports


def sort_arrivals(seen: Iterable[history.EffectCopy]) -> list[history.EffectCopy]:
    """Keep what was handed out several times once, as seen first, and in the order of arrival."""
    first: dict[tuple[str, int], history.EffectCopy] = {}
    for one in seen:
        first.setdefault((one.region, one.number), one)
    return [first[place] for place in sorted(first)]


def read_left(final_state: Mapping[str, Any]) -> history.Leftovers:
    queues = {
        f"{region}/{queue}": depth
        for region, depths in final_state["depths"].items()
        for queue, depth in depths.items()
    }
    return history.Leftovers(
        queued={name: sum(depth[one] for one in STATES) for name, depth in queues.items()},
        dead={name: depth["dead_lettered"] for name, depth in queues.items()},
        unfinished={what: tuple(names) for what, names in final_state["unfinished"].items()},
        kinds=final_state["kinds"],
        old_entries=final_state["old_entries"],
    )

"""From the files of a run to the history that is judged."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from chaos.chain import START, digest
from chaos.judge.history import Head, History, Left, Quiet, Report, Run, Seen, Sent
from chaos.names import EFFECTFUL, EFFECTS_QUEUE, ERROR_QUEUE, POISONED
from chaos.places import Places
from chaos.records import read_lines

STATES = ("active", "locked", "scheduled", "deferred")

type Line = Mapping[str, Any]


def read_history(places: Places) -> History:
    """Read everything that a run left; raises OSError or ValueError for what cannot be read."""
    left = json.loads(places.remains.read_text(encoding="utf-8"))
    seen, reports = read_witnessed(places.witnessed)
    return History(
        regions=tuple(left["depths"]),
        sent=tuple(read_sent(places.load, places.ledger)),
        seen=tuple(arrivals(seen)),
        reports=tuple(reports),
        runs=tuple(read_runs(places.runs)),
        heads={session: head(state) for session, state in left["heads"].items()},
        left=read_left(left),
        quiet=read_quiet(places.course),
    )


def read_sent(load: Path, ledger: Path) -> Iterator[Sent]:
    """The messages of the load, with what the sender's ledger says of them."""
    begun: set[tuple[str, int]] = set()
    safe: dict[tuple[str, int], float] = {}
    for line in read_lines(ledger):
        places = {(line["session"], line["first"] + n) for n in range(line["count"])}
        if line["what"] == "begun":
            begun |= places
        else:
            safe |= dict.fromkeys(places, line["at"])
    for operation in read_lines(load):
        for sequence, letter in enumerate(operation["letters"], start=operation["first"]):
            message_id, kind, body = letter
            place = (operation["session"], sequence)
            yield Sent(
                *place,
                id=message_id,
                digest=digest(kind, body.encode()),
                is_poisoned=kind in POISONED,
                calls_outside=kind == EFFECTFUL,
                is_begun=place in begun,
                safe_at=safe.get(place),
            )


def read_witnessed(path: Path) -> tuple[list[Seen], list[Report]]:
    """Effects and error reports, each in the order in which they came out."""
    seen: list[Seen] = []
    reports: list[Report] = []
    for line in read_lines(path):
        match line["queue"]:
            case str(queue) if queue == EFFECTS_QUEUE:
                seen.append(read_seen(line))
            case str(queue) if queue == ERROR_QUEUE:
                reports.append(read_report(line))
            case unknown:
                raise ValueError(f"nobody reads the queue {unknown}")
    return seen, reports


def arrivals(seen: Iterable[Seen]) -> list[Seen]:
    """What was handed out several times once, as it was seen first, and in the order of arrival."""
    first: dict[tuple[str, int], Seen] = {}
    for one in seen:
        first.setdefault((one.region, one.number), one)
    return [first[place] for place in sorted(first)]


def read_seen(line: Line) -> Seen:
    """One copy of an effect."""
    said = json.loads(line["body"])
    return Seen(
        at=line["at"],
        region=line["region"],
        number=line["number"],
        output=line["id"],
        fingerprint=line["fingerprint"],
        **said,
    )


def read_report(line: Line) -> Report:
    """One copy of an error report; what is not about a message names none."""
    said = json.loads(line["body"])
    return Report(
        region=line["region"],
        report=line["id"],
        fingerprint=line["fingerprint"],
        session=line["session"],
        of=said.get("message", {}).get("id"),
        reason=said.get("reason", ""),
    )


def read_runs(path: Path) -> Iterator[Run]:
    """The runs of handlers that call the outside."""
    for line in read_lines(path):
        yield Run(line["at"], line["session"], line["id"], line["key"])


def head(state: Line) -> Head:
    """Where a session stands."""
    return Head(state.get("place", 0), state.get("chain", START))


def read_left(remains: Line) -> Left:
    """What was left at the end."""
    queues = {
        f"{region}/{queue}": depth
        for region, depths in remains["depths"].items()
        for queue, depth in depths.items()
    }
    return Left(
        queued={name: sum(depth[one] for one in STATES) for name, depth in queues.items()},
        dead={name: depth["dead_lettered"] for name, depth in queues.items()},
        unfinished={what: tuple(names) for what, names in remains["unfinished"].items()},
        kinds=remains["kinds"],
        old_entries=remains["old_entries"],
    )


def read_quiet(course: Path) -> Quiet:
    """The stretch without faults; a run that never came to its end has an empty one."""
    for line in read_lines(course):
        if line["kind"] == "quiet":
            return Quiet(line["at"], line["counts"])
    return Quiet(0.0, {})

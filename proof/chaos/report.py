"""The report of a run, in lines: what went in, what was injected, what came out, and what broke."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import quantiles
from typing import Any

from proof.chaos.checker.history import RunHistory
from proof.chaos.checker.promises import PromiseResult
from proof.chaos.plan import OutageKind

OUTAGES = frozenset(map(str, OutageKind))


def format_report(
    history: RunHistory, events: Sequence[Mapping[str, Any]], results: Sequence[PromiseResult]
) -> Iterator[str]:
    """Yield the lines of a report; `events` are the lines of the run's log."""
    yield ""
    for label, value in describe_run(history, events).items():
        yield f"{label:<28}{value}"
    yield ""
    for result in results:
        yield f"{'BROKEN' if result.violations else 'ok'}  {result}"
    if not any(result.violations for result in results):
        yield "\nevery promise held"


def describe_run(history: RunHistory, events: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    safe = [sent for sent in history.sent if sent.is_safe]
    sessions = len({sent.session for sent in safe})
    faults = [line for line in events if line["kind"] == "fault"]
    # An outage that strikes several components is one.
    outages = {(line["what"], line["begin"]) for line in faults if line["what"] in OUTAGES}
    degradations = [line["what"].split()[0] for line in faults if line["what"] not in OUTAGES]
    return {
        "messages accepted": f"{len(safe)} in {sessions} sessions",
        "effects": f"{len(history.copies)}, {len(history.seen)} copies sent",
        "runs of effectful handlers": f"{len(history.runs)} for"
        f" {len({run.id for run in history.runs})} messages",
        "outages": count_words(what for what, _ in outages),
        "degradations": count_words(degradations),
        "accepted to effect visible": describe_waits(history),
        "duration": f"{events[-1]['at'] - events[0]['at']:.0f} s",
    }


def count_words(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common()) or "nothing"


def describe_waits(history: RunHistory) -> str:
    """Describe how long messages took from accepted to their first effect in any region."""
    waits = [
        max(0.0, min(copy.at for copy in copies) - sent.safe_at)
        for name, copies in history.copies.items()
        if (sent := history.by_id.get(name)) is not None and sent.safe_at is not None
    ]
    if len(waits) < 2:
        return "too few"
    parts = quantiles(waits, n=100, method="inclusive")
    return f"median {parts[49]:.2f} s, 99th percentile {parts[98]:.1f} s"

"""The answer to what an operator asks first: is each region at work, and is a person needed?

Each region's sweep looks once a minute at what the journal shows of every region, so that a region
that is lost is recorded by the others. A record holds the last look and the minutes of an hour.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum, auto
from itertools import accumulate
from typing import Any

from shared.domain.journal import RecentEntry
from shared.domain.moments import parse_seconds
from shared.domain.saga.record import ListedSaga
from shared.domain.standstill import URGENCY, Cause, CountedCauses, StandstillKind

MINUTES = 60
# Causes that a record keeps: a minute's write and every look at the page cost by its size.
CAUSES_CHARACTERS_MAX = 10_000


class SagaCount(StrEnum):
    """The counts of sagas that are running; those of the last two are among those of the first."""

    RUNNING = auto()
    WAITING = auto()  # nobody has decided one of its waits
    OVERDUE = auto()  # its plan should have come to its last step long ago


@dataclass(frozen=True, slots=True)
class Minute:
    """A region as a look found it: how many messages it processed in a second of the minute before.

    `waited` is for how many seconds its oldest output has waited for it, and `silent` for how many
    nothing was heard of it: 0 where none waits, and where it was heard within two minutes.
    """

    rate: float
    waited: float
    silent: float = 0.0


@dataclass(frozen=True, slots=True)
class Attention:
    """A count of what needs attention, of one kind, and since when the oldest does.

    Reports are counted so, too, and sagas: those that run or wait since they started, others since
    they are due. `since` is in seconds since 1970. With `is_more` there are more.
    """

    count: int
    since: float
    is_more: bool = False


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """The record of a region: when it looked last, in seconds since 1970, and what it found.

    `minutes` has by region the minutes of the last hour, by their number since 1970: a minute
    without a look is not there. `causes` are those of what needs attention, and `reports` are those
    that nobody has ended. Of sagas a count is left out of which there is none.
    """

    at: float
    attention: Mapping[StandstillKind, Attention] = field(default_factory=dict)
    minutes: Mapping[str, Mapping[int, Minute]] = field(default_factory=dict)
    reports: Attention | None = None
    sagas: Mapping[SagaCount, Attention] = field(default_factory=dict)
    causes: CountedCauses | None = None


NO_RECORD = RegionRecord(0.0)


def measure_rate(recent: Sequence[RecentEntry], region: str, seconds: float, limit: int) -> float:
    """Return how many messages of a second a region processed; `recent` has the newest first.

    With `limit` entries or more only the time is counted that they reach back.
    """
    reach = min(seconds, max(1.0, recent[-1].age_seconds)) if len(recent) >= limit else seconds
    return sum(one.messages for one in recent if one.region == region) / reach


def count_attention(counted: CountedCauses) -> dict[StandstillKind, Attention]:
    """Return by kind what needs attention, the most urgent first."""
    found: dict[StandstillKind, list[Cause]] = {}
    for one in counted.causes:
        found.setdefault(one.kind, []).append(one)
    return {
        kind: Attention(
            sum(one.count for one in causes), min(one.since for one in causes), counted.is_more
        )
        for kind in URGENCY
        if (causes := found.get(kind))
    }


def cut_causes(counted: CountedCauses) -> CountedCauses:
    """Return the first causes of a count, as many as a record keeps."""
    sizes = accumulate(len(one.cause) + len(one.example) for one in counted.causes)
    kept = sum(size <= CAUSES_CHARACTERS_MAX for size in sizes)
    return replace(counted, causes=counted.causes[:kept], is_cut=kept < len(counted.causes))


def count_times(times: Sequence[float], limit: int) -> Attention | None:
    """Return the count of what came at these times; None for none."""
    return Attention(len(times), min(times), len(times) >= limit) if times else None


def is_overdue(due: float | None, now: float, late_seconds: float) -> bool:
    """Return whether a saga that is due at a time has run for so many seconds longer."""
    return due is not None and due <= now - late_seconds


def count_sagas(
    due_first: Sequence[ListedSaga], now: float, late_seconds: float, limit: int
) -> dict[SagaCount, Attention]:
    """Return the counts of sagas that are running, of those that are due first."""
    is_more = len(due_first) >= limit
    started = [(one, parse_seconds(one.started)) for one in due_first if one.started]
    late = [one.due for one in due_first if one.due and is_overdue(one.due, now, late_seconds)]
    found = {
        SagaCount.RUNNING: ([at for _, at in started], is_more),
        SagaCount.WAITING: ([at for one, at in started if one.waits], is_more),
        # Where one that is not late was found, all that are late were.
        SagaCount.OVERDUE: (late, is_more and len(late) == limit),
    }
    return {
        count: Attention(len(times), min(times), is_more=more)
        for count, (times, more) in found.items()
        if times
    }


def add_look(
    record: RegionRecord,
    at: float,
    attention: Mapping[StandstillKind, Attention],
    looked: Mapping[str, Minute],
    reports: Attention | None,
    sagas: Mapping[SagaCount, Attention],
    causes: CountedCauses,
) -> RegionRecord:
    """Return the record after a look; what is older than an hour is left out."""
    now = int(at // 60)
    minutes = {
        region: {
            minute: one
            for minute, one in {**record.minutes.get(region, {}), now: looked[region]}.items()
            if now - MINUTES < minute <= now
        }
        for region in looked
    }
    return RegionRecord(at, attention, minutes, reports, sagas, causes)


def merge_records(records: Iterable[RegionRecord]) -> RegionRecord:
    """Return the newest look of all, with the minutes of all: the newest record counts for each."""
    merged = NO_RECORD
    minutes: dict[str, dict[int, Minute]] = {}
    for record in sorted(records, key=lambda one: one.at):
        merged = record
        for region, looked in record.minutes.items():
            minutes.setdefault(region, {}).update(looked)
    now = int(merged.at // 60)
    return replace(
        merged,
        minutes={
            region: {at: one for at, one in looked.items() if at > now - MINUTES}
            for region, looked in minutes.items()
        },
    )


def silent_minutes(minutes: Mapping[int, Minute]) -> list[int]:
    """Return the minutes in which nothing was heard of a region; a look tells of earlier ones."""
    return sorted(
        {
            before
            for at, one in minutes.items()
            if one.silent
            for before in range(at - int(one.silent // 60), at + 1)
        }
    )


def encode_look(record: RegionRecord) -> str:
    """Return a record as text, as short as it may be: it is written once a minute."""
    document = {
        "at": record.at,
        "attention": {kind: encode_count(one) for kind, one in record.attention.items()},
        "minutes": {
            region: {
                str(at): [round(one.rate, 2), round(one.waited), round(one.silent)]
                for at, one in looked.items()
            }
            for region, looked in record.minutes.items()
        },
        "open_reports": record.reports and encode_count(record.reports),
        "sagas": {count: encode_count(one) for count, one in record.sagas.items()},
        "causes": record.causes and asdict(record.causes),
    }
    return json.dumps(document, separators=(",", ":"))


def encode_count(one: Attention) -> list[object]:
    return [one.count, one.since, one.is_more]


def decode_look(text: str | None) -> RegionRecord:
    """Return what a text says; nothing for none, and for what another release wrote otherwise."""
    try:
        document = json.loads(text or "{}")
        return RegionRecord(
            float(document["at"]),
            {StandstillKind(k): Attention(*one) for k, one in document["attention"].items()},
            {
                region: {
                    int(at): Minute(rate, waited, silent)
                    for at, (rate, waited, silent) in looked.items()
                }
                for region, looked in document["minutes"].items()
            },
            # Releases before counted these otherwise, or not at all.
            Attention(*reports) if (reports := document.get("open_reports")) else None,
            {SagaCount(k): Attention(*one) for k, one in document.get("sagas", {}).items()},
            decode_causes(causes) if (causes := document.get("causes")) else None,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return NO_RECORD


def decode_causes(document: Mapping[str, Any]) -> CountedCauses:
    causes = (Cause(**one | {"kind": StandstillKind(one["kind"])}) for one in document["causes"])
    return CountedCauses(**{**document, "causes": tuple(causes)})

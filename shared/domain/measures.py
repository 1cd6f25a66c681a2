"""The counters and timers of a worker: the names that docs/telemetry.md lists."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from shared.domain.journal import Entry, Status


class MeasureKind(Enum):
    COUNTER = auto()
    HISTOGRAM = auto()
    GAUGE = auto()


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. Every value has the attribute `region`, and those named here."""

    name: str
    kind: MeasureKind
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()


def counter(name: str, unit: str, meaning: str, *attributes: str) -> Measure:
    return Measure(f"lockstep.{name}", MeasureKind.COUNTER, unit, meaning, attributes)


def histogram(name: str, meaning: str, *attributes: str) -> Measure:
    return Measure(f"lockstep.{name}", MeasureKind.HISTOGRAM, "s", meaning, attributes)


def gauge(name: str, unit: str, meaning: str, *attributes: str) -> Measure:
    return Measure(f"lockstep.{name}", MeasureKind.GAUGE, unit, meaning, attributes)


EFFECTS = counter("effects", "{message}", "messages that were processed, each once")
FOLDS = counter("folds", "{entry}", "entries that hold several messages")
PARKED = counter("parked", "{message}", "messages that were parked, as their turn had not come")
FAULTS = counter("faults", "{message}", "messages that failed for good")
HALTS = counter("halts", "{session}", "sessions that a fault halted")
REFUSALS = counter("refusals", "{message}", "messages that were skipped or refused, with a reason")
CLAIMS = counter("claims", "{entry}", "claims for handlers that call the outside")
TAKEOVERS = counter("takeovers", "{entry}", "claims taken over from an owner that is gone")
DUPLICATES = counter("duplicates", "{message}", "deliveries that were copies of what was processed")
REJECTIONS = counter("rejections", "{message}", "deliveries that no journal takes")
SENT = counter("sent", "{message}", "messages that a queue took", "queue", "to")
UNSENT = counter("unsent", "{message}", "messages that a queue did not take", "queue", "to")
REQUEST_UNITS = counter(
    "store.request_units", "{RU}", "request units that the journal's account charged", "operation"
)
DELIVERY_SECONDS = histogram("delivery.duration", "how long one delivery was worked on", "outcome")
LATENCY_SECONDS = histogram(
    "delivery.latency",
    "from the time that the region's broker took a message to the end of its delivery",
    "outcome",
)
PENDING_SESSIONS = gauge(
    "pending.sessions", "{session}", "sessions with outputs that this region misses, at a sweep"
)
PENDING_SECONDS = gauge("pending.age", "s", "how long the oldest of these outputs waits")
GAP_SESSIONS = gauge("gap.sessions", "{session}", "sessions with parked messages, at a sweep")
GAP_SECONDS = gauge("gap.age", "s", "how long the oldest of these sessions waits")
ARCHIVE_SECONDS = gauge(
    "archive.age", "s", "for how long no archive has what was written, at a compaction"
)
UNARCHIVED = counter(
    "unarchived", "{run}", "compactions that kept more than the retention asks, for the archive"
)
BLOCKED_QUEUES = gauge(
    "blocked.queues", "{queue}", "queues that outputs stayed blocked for in this region, at a sweep"
)
POSTPONED = counter(
    "postponed", "{run}", "sweeps, or notes that one ran, that the journal's account did not take"
)
SILENCES = counter(
    "silences", "{look}", "looks, once a minute, at which a feed or a timer was silent", "of"
)
STRANGERS = counter("strangers", "{step}", "steps of sagas of another app, in this task hub")
SILENCE_SECONDS = gauge("region.silence", "s", "how long ago another region was heard", "of")

MEASURES = (
    EFFECTS,
    FOLDS,
    PARKED,
    FAULTS,
    HALTS,
    REFUSALS,
    CLAIMS,
    TAKEOVERS,
    DUPLICATES,
    REJECTIONS,
    SENT,
    UNSENT,
    REQUEST_UNITS,
    DELIVERY_SECONDS,
    LATENCY_SECONDS,
    PENDING_SESSIONS,
    PENDING_SECONDS,
    GAP_SESSIONS,
    GAP_SECONDS,
    ARCHIVE_SECONDS,
    UNARCHIVED,
    BLOCKED_QUEUES,
    POSTPONED,
    SILENCES,
    STRANGERS,
    SILENCE_SECONDS,
)


def measure_entry(entry: Entry) -> Mapping[Measure, int]:
    """Return what a new entry adds to the counters."""
    match entry.status:
        case Status.COMPLETED:
            count = len(entry.identities)
            return {EFFECTS: count, FOLDS: 1} if count > 1 else {EFFECTS: count}
        case Status.FAULTED:
            halts = entry.halt is not None and entry.halt.at == entry.position
            return {FAULTS: 1, HALTS: 1} if halts else {FAULTS: 1}
        case Status.SKIPPED:
            return {REFUSALS: len(entry.identities)}
        case Status.PARKED:
            return {PARKED: 1}
        case Status.WORKING:
            return {CLAIMS: 1}

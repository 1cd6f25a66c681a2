"""The input of check_history: what was sent, what was seen, and what was left over.

Nothing here comes from the engine but what it did to the outside: its outputs, its reports, the
marks of its handlers, and documents as a plain client reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the workload, at its place among those of its session, numbered from 0.

    `begun` says that the sender tried to publish it, `safe` when it was told that it had, in
    seconds since the epoch. A poisoned one is to end as a fault; the handler of one that calls the
    outside leaves a mark there, beside its effect.
    """

    session: str
    sequence: int
    id: str
    digest: str
    is_poisoned: bool = False
    calls_outside: bool = False
    is_begun: bool = True
    safe_at: float | None = None

    @property
    def is_safe(self) -> bool:
        return self.safe_at is not None

    def __str__(self) -> str:
        return f"{self.session} message {self.sequence}"


@dataclass(frozen=True, slots=True)
class EffectCopy:
    """A copy of an output as it came out of a region's queue.

    `number` is the queue's own: it grows from one arrival to the next, and a copy that is only
    handed out again keeps it. The rest is what the output says of the message it is the effect of:
    the place it took in its session, and the chain.
    """

    at: float
    region: str
    number: int
    output: str
    fingerprint: str
    session: str
    place: int
    sequence: int
    id: str
    digest: str
    chain: str

    def __str__(self) -> str:
        return f"{self.session} message {self.sequence} in {self.region}"


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A copy of a message in a region's error queue; `of` is the message it names, if any."""

    region: str
    report: str
    fingerprint: str
    session: str
    of: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class HandlerRun:
    """A handler that calls the outside began to run for a message, with this idempotency key."""

    at: float
    session: str
    id: str
    key: str


@dataclass(frozen=True, slots=True)
class SessionHead:
    place: int
    chain: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """The stretch without faults at the beginning, and what was counted in it by name."""

    until: float
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The rest that was left at the end.

    `queued` counts messages by queue and state; `dead` dead messages by queue; `unfinished` names
    documents with which something is still to be done; `kinds` counts documents; `old_entries`
    counts, by session, entries that are older than anything has to be.
    """

    queued: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)
    unfinished: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    old_entries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RunHistory:
    """Everything that is checked; what was seen is in the order of arrival, once for each.

    `refusing` are the regions whose queues took nothing for a while as if a person had to change
    something.
    """

    regions: tuple[str, ...]
    sent: tuple[SentMessage, ...]
    seen: tuple[EffectCopy, ...]
    reports: tuple[ErrorReport, ...]
    runs: tuple[HandlerRun, ...]
    heads: Mapping[str, SessionHead]
    left: Leftovers
    baseline: Baseline
    refusing: frozenset[str] = frozenset()

    @cached_property
    def by_id(self) -> Mapping[str, SentMessage]:
        return {sent.id: sent for sent in self.sent}

    @cached_property
    def copies(self) -> Mapping[str, list[EffectCopy]]:
        found: dict[str, list[EffectCopy]] = {}
        for seen in self.seen:
            found.setdefault(seen.id, []).append(seen)
        return found

    @cached_property
    def sessions(self) -> Mapping[str, list[SentMessage]]:
        """The messages each session should apply, in order: those that were begun and no poison."""
        found: dict[str, list[SentMessage]] = {}
        for sent in self.sent:
            if sent.is_begun and not sent.is_poisoned:
                found.setdefault(sent.session, []).append(sent)
        return {name: sorted(own, key=lambda one: one.sequence) for name, own in found.items()}

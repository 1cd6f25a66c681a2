"""The publisher of a session, and what a producer knows of a session it publishes to."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf

from shared.domain.errors import InvalidOptions
from shared.domain.producer import Ledger, ProducerOptions, require_range

# Every entry of a session names the groups it heard of, so the name is short: 80 random bits.
ASSIGNED_PREFIX = "assigned-"
# A caller who wants more tries has a loop of its own.
RETRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class PartitionPublishingOptions:
    """The options of one session. A field that is None is the same as for all other sessions.

    `starting_sequence_number` is where the caller's own record of the session goes on. It must
    agree with the ledger: it is either the next number, or the first number of the newest
    operation, whose answer the caller may have missed. A session that the group has never
    published to starts at 0.
    """

    producer_group_id: str | None = None
    owner_level: int | None = None
    starting_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionPublishingProperties:
    """The state of a producer's group in a session (the partition), as far as it is published.

    Where it never did, there is no number, and the owner level is that of the options: None where
    they name none. A number that is given to messages which no region surely has is not published.
    """

    partition_id: str
    producer_group_id: str | None
    owner_level: int | None
    last_published_sequence_number: int | None
    is_idempotent_publishing_enabled: bool = True


class RetryMode(StrEnum):
    """The ways in which the delays between tries grow."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """The tries of a send that fails with a transient error; all have the same numbers.

    After `maximum_retries` further tries the error is raised. Between two tries `delay_seconds`
    pass, twice as many after each try in the mode EXPONENTIAL, but `maximum_delay_seconds` at most
    unless the service asks for more. A try without an answer after `try_timeout_seconds` has failed
    with OutcomeUnknown; None leaves that to the deadlines of the calls. Raises InvalidOptions.
    """

    maximum_retries: int = 0
    delay_seconds: float = 0.8
    maximum_delay_seconds: float = 60.0
    try_timeout_seconds: float | None = None
    mode: RetryMode = RetryMode.EXPONENTIAL

    def __post_init__(self) -> None:
        require_range("maximum_retries", self.maximum_retries, RETRIES_MAX)
        for name in ("delay_seconds", "maximum_delay_seconds", "try_timeout_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < inf:
                raise InvalidOptions(f"{name} is a number of seconds from 0 on, not {seconds!r}")

    def delay_after(self, tried: int) -> float:
        """The seconds between the try with this number, from 1 on, and the next one."""
        factor = 2.0 ** min(tried - 1, RETRIES_MAX) if self.mode is RetryMode.EXPONENTIAL else 1.0
        return min(self.delay_seconds * factor, self.maximum_delay_seconds)


@dataclass(frozen=True, slots=True)
class IdempotentProducerOptions:
    """The options of a publisher. Its owner level is 0 unless given; a session's override these.

    A producer that is opened without a group is given one, which nobody else has, for its life.
    Raises InvalidOptions for any session named here, before anything is opened.
    """

    producer_group_id: str | None = None
    owner_level: int | None = None
    partition_options: Mapping[str, PartitionPublishingOptions] = field(default_factory=dict)
    retry_options: RetryOptions = RetryOptions()

    def __post_init__(self) -> None:
        if self.producer_group_id is None:
            # Whatever group is assigned, all else is checked now.
            self.with_assigned_group()
            return
        for session in ("", *self.partition_options):
            self.resolve(session)

    def with_assigned_group(self) -> "IdempotentProducerOptions":
        """These options, with a new group where they name none."""
        if self.producer_group_id is not None:
            return self
        return replace(self, producer_group_id=f"{ASSIGNED_PREFIX}{secrets.token_hex(10)}")

    def resolve(self, session: str) -> ProducerOptions:
        """A session's options; raises InvalidOptions where they name no group for it."""
        group, level, start = self.merge(session)
        if group is None:
            raise InvalidOptions("no producer is open that could have assigned a group")
        return ProducerOptions(group, level or 0, start)

    def describe(self, session: str, ledger: Ledger | None) -> PartitionPublishingProperties:
        """A session's properties by its ledger, or by these options where there is none."""
        group, level, _ = self.merge(session)
        if ledger is None:
            return PartitionPublishingProperties(session, group, level, None)
        last = ledger.next - 1 if ledger.next else None
        return PartitionPublishingProperties(session, group, ledger.level, last)

    def merge(self, session: str) -> tuple[str | None, int | None, int | None]:
        own = self.partition_options.get(session, PartitionPublishingOptions())
        group = self.producer_group_id if own.producer_group_id is None else own.producer_group_id
        level = self.owner_level if own.owner_level is None else own.owner_level
        return group, level, own.starting_sequence_number

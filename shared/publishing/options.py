"""The options of an idempotent producer: for all sessions, and for single ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.domain.producer import ProducerOptions


@dataclass(frozen=True, slots=True)
class PartitionPublishingOptions:
    """What differs for one session; what is None is as for all others.

    `starting_sequence_number` is where the caller's own record of the session goes on. It must
    agree with the ledger: the next number, or the first one of the newest operation, whose answer
    the caller may have missed. A session that the group never published to starts at 0.
    """

    producer_group_id: str | None = None
    owner_level: int | None = None
    starting_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class IdempotentProducerOptions:
    """Who publishes. Without an owner level it is 0; a session's options override these.

    Raises InvalidOptions, for every session named, before anything is opened.
    """

    producer_group_id: str
    owner_level: int | None = None
    partition_options: Mapping[str, PartitionPublishingOptions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for session in ("", *self.partition_options):
            self.for_session(session)

    def said_of(self, session: str) -> PartitionPublishingOptions:
        """What these options say of a session, with None where they leave it open."""
        own = self.partition_options.get(session, PartitionPublishingOptions())
        level = self.owner_level if own.owner_level is None else own.owner_level
        group = self.producer_group_id if own.producer_group_id is None else own.producer_group_id
        return PartitionPublishingOptions(group, level, own.starting_sequence_number)

    def for_session(self, session: str) -> ProducerOptions:
        """The options with which a session's first operation begins."""
        said = self.said_of(session)
        return ProducerOptions(
            self.producer_group_id if said.producer_group_id is None else said.producer_group_id,
            said.owner_level or 0,
            said.starting_sequence_number,
        )

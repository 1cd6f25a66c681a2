"""What a producer knows of a session it publishes to."""

from dataclasses import dataclass

from shared.publishing.options import PartitionPublishingOptions


@dataclass(frozen=True, slots=True)
class PartitionPublishingProperties:
    """A producer's view of a session (the partition): what is not known yet is None.

    Before the first successful send it is what the options say, and nothing was asked of the store.
    """

    partition_id: str
    producer_group_id: str | None
    owner_level: int | None
    last_published_sequence_number: int | None
    is_idempotent_publishing_enabled: bool = True


def said_before(session: str, said: PartitionPublishingOptions) -> PartitionPublishingProperties:
    """The properties of a session that nothing was sent to: what its options say."""
    start = said.starting_sequence_number
    last = start - 1 if start else None
    return PartitionPublishingProperties(session, said.producer_group_id, said.owner_level, last)

"""What the public producer promises on whatever it runs. Subclasses bring `opening` and `sent`."""

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

import pytest

from shared.domain.errors import ProducerDisconnected
from shared.domain.message import Message
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingProperties
from shared.publishing.producer import IdempotentProducer

type Opened = AbstractAsyncContextManager[IdempotentProducer]

OPTIONS = IdempotentProducerOptions("bank")


def drafts(first: int, how_many: int) -> list[SessionMessage]:
    """New messages; their ids and bodies tell them apart."""
    return [
        SessionMessage(f"m-{n}", "account.add", f'{{"amount":{n},"note":"Zoë"}}')
        for n in range(first, first + how_many)
    ]


def numbers(messages: list[SessionMessage]) -> list[int | None]:
    return [message.published_sequence_number for message in messages]


def told(messages: list[Message]) -> list[tuple[int | None, str, bytes]]:
    """Number, id and body of what arrived."""
    return [(m.number.sequence if m.number else None, m.id, m.body) for m in messages]


def expected(messages: list[SessionMessage]) -> list[tuple[int | None, str, bytes]]:
    """Number, id and body of what was published."""
    return [(m.published_sequence_number, m.draft.id, m.draft.body) for m in messages]


class PublishingBasics(ABC):
    """The promises that are shown over the wire too, one test each."""

    @abstractmethod
    def opening(self, options: IdempotentProducerOptions) -> Opened:
        """A new producer process."""

    @abstractmethod
    async def sent(self, region: str, session: str, how_many: int) -> list[Message]:
        """What a region's queue holds of a session, in order; waits until that many are there."""

    async def test_a_second_batch_begins_where_the_first_ended(self, session: str) -> None:
        async with self.opening(OPTIONS) as producer:
            batches = []
            for first, how_many in ((0, 3), (3, 2)):
                batch = await producer.create_batch(session)
                for message in drafts(first, how_many):
                    assert batch.try_add(message)
                assert batch.starting_published_sequence_number is None
                await producer.send(batch)
                batches.append(batch)

        assert [b.starting_published_sequence_number for b in batches] == [0, 3]
        assert [numbers(b.messages) for b in batches] == [[0, 1, 2], [3, 4]]
        arrived = await self.sent("west", session, 5)
        assert told(arrived) == expected(batches[0].messages + batches[1].messages)

    async def test_a_new_process_resumes_from_the_ledger(self, session: str) -> None:
        first, again, more = drafts(0, 2), drafts(0, 2), drafts(2, 1)
        for messages in (first, again, more):
            async with self.opening(OPTIONS) as producer:
                await producer.send(messages, session=session)

        assert [numbers(first), numbers(again), numbers(more)] == [[0, 1], [0, 1], [2]]
        assert told(await self.sent("east", session, 3)) == expected(first + more)

    async def test_a_new_process_knows_what_its_group_has_published(self, session: str) -> None:
        async with self.opening(IdempotentProducerOptions("bank", 2)) as first:
            await first.send(drafts(0, 3), session=session)
        async with self.opening(OPTIONS) as second:
            known = await second.get_partition_publishing_properties(session)
            other = await second.get_partition_publishing_properties(f"{session}-other")

        # The level is the owner's, by which this producer knows that it is fenced.
        assert known == PartitionPublishingProperties(session, "bank", 2, 2)
        assert other == PartitionPublishingProperties(f"{session}-other", "bank", None, None)

    async def test_a_higher_owner_level_takes_over(self, session: str) -> None:
        mine, late, theirs = drafts(0, 1), drafts(1, 1), drafts(2, 1)
        async with self.opening(OPTIONS) as older:
            await older.send(mine, session=session)
            async with self.opening(IdempotentProducerOptions("bank", 1)) as newer:
                await newer.send(theirs, session=session)
                for _ in range(2):
                    with pytest.raises(ProducerDisconnected, match="level 1"):
                        await older.send(late, session=session)
                await newer.send(drafts(3, 1), session=session)

        assert [numbers(mine), numbers(theirs), numbers(late)] == [[0], [1], [None]]
        arrived = await self.sent("east", session, 3)
        assert [m.number and (m.number.level, m.number.sequence) for m in arrived] == [
            (0, 0),
            (1, 1),
            (1, 2),
        ]

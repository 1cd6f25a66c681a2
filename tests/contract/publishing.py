"""What the public producer promises, on whatever it runs. Subclasses bring `opening` and `sent`."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from itertools import chain

import pytest

from shared.domain.errors import (
    AlreadyPublished,
    ContentConflict,
    InvalidClientState,
    ProducerClosed,
    ProducerDisconnected,
)
from shared.domain.message import Message
from shared.publishing.message import SessionMessage
from shared.publishing.options import (
    IdempotentProducerOptions,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
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


def starting(session: str, number: int, level: int | None = None) -> IdempotentProducerOptions:
    """Options of a caller that kept where its session goes on."""
    own = PartitionPublishingOptions(starting_sequence_number=number)
    return IdempotentProducerOptions("bank", level, {session: own})


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


class PublishingContract(PublishingBasics):
    async def test_messages_are_numbered_from_zero_and_without_gaps(self, session: str) -> None:
        messages = drafts(0, 5)
        async with self.opening(OPTIONS) as producer:
            await producer.send(messages, session=session)

        assert numbers(messages) == [0, 1, 2, 3, 4]
        for region in ("east", "west"):
            assert told(await self.sent(region, session, 5)) == expected(messages)

    async def test_a_published_batch_neither_grows_nor_is_published_again(
        self, session: str
    ) -> None:
        async with self.opening(OPTIONS) as producer:
            batch = await producer.create_batch(session)
            batch.add(drafts(0, 1)[0])
            await producer.send(batch)

            with pytest.raises(AlreadyPublished):
                batch.try_add(drafts(1, 1)[0])
            with pytest.raises(AlreadyPublished):
                await producer.send(batch)
            with pytest.raises(AlreadyPublished, match="m-0"):
                await producer.send(batch.messages, session=session)

        assert len(await self.sent("east", session, 1)) == 1

    async def test_sends_to_one_session_at_once_take_turns(self, session: str) -> None:
        sets = [drafts(10 * n, 3) for n in range(3)]
        async with self.opening(OPTIONS) as producer:
            await asyncio.gather(*(producer.send(own, session=session) for own in sets))

        assert set(numbers([*chain(*sets)])) == set(range(9))
        for own in sets:
            first = own[0].published_sequence_number or 0
            assert numbers(own) == [first, first + 1, first + 2]
        in_order = sorted(sets, key=lambda own: own[0].published_sequence_number or 0)
        assert told(await self.sent("east", session, 9)) == expected([*chain(*in_order)])

    async def test_the_properties_grow_with_what_is_sent(self, session: str) -> None:
        async with self.opening(IdempotentProducerOptions("bank", 3)) as producer:
            before = await producer.get_partition_publishing_properties(session)
            await producer.send(drafts(0, 2), session=session)
            after = await producer.get_partition_publishing_properties(session)
            await producer.send(drafts(2, 1), session=session)
            later = await producer.get_partition_publishing_properties(session)

        assert before == PartitionPublishingProperties(session, "bank", 3, None)
        assert after == PartitionPublishingProperties(session, "bank", 3, 1)
        assert later == PartitionPublishingProperties(session, "bank", 3, 2)
        assert later.is_idempotent_publishing_enabled

    async def test_a_new_process_resumes_from_what_the_caller_kept(self, session: str) -> None:
        first, more = drafts(0, 2), drafts(2, 2)
        async with self.opening(OPTIONS) as producer:
            await producer.send(first, session=session)

        async with self.opening(starting(session, 2)) as producer:
            kept = await producer.get_partition_publishing_properties(session)
            await producer.send(more[:1], session=session)
            await producer.send(more[1:], session=session)

        assert kept.last_published_sequence_number == 1
        assert numbers(more) == [2, 3]

    @pytest.mark.parametrize("start", [0, 1, 9])
    async def test_a_starting_number_that_disagrees_is_fatal_for_its_session(
        self, session: str, start: int
    ) -> None:
        for n in range(3):
            async with self.opening(OPTIONS) as producer:
                await producer.send(drafts(n, 1), session=session)

        async with self.opening(starting(session, start)) as producer:
            for _ in range(2):
                refused = drafts(3, 1)
                with pytest.raises(InvalidClientState, match="expects 3"):
                    await producer.send(refused, session=session)
                assert numbers(refused) == [None]
            await producer.send(drafts(0, 1), session=f"{session}-other")
        async with self.opening(OPTIONS) as producer:
            await producer.send(refused, session=session)

        assert numbers(refused) == [3]

    async def test_a_broken_session_stays_broken_when_its_number_would_agree_later(
        self, session: str
    ) -> None:
        async with self.opening(starting(session, 1)) as broken, self.opening(OPTIONS) as other:
            with pytest.raises(InvalidClientState, match="expects 0"):
                await broken.send(drafts(0, 1), session=session)
            await other.send(drafts(0, 1), session=session)

            with pytest.raises(InvalidClientState, match="open a new producer"):
                await broken.send(drafts(1, 1), session=session)

    async def test_two_producers_of_one_level_share_the_numbers(self, session: str) -> None:
        async with self.opening(OPTIONS) as one, self.opening(OPTIONS) as other:
            sets = [drafts(10 * n, 2) for n in range(4)]
            for producer, own in zip((one, other, one, other), sets, strict=True):
                await producer.send(own, session=session)

        assert [numbers(own) for own in sets] == [[0, 1], [2, 3], [4, 5], [6, 7]]

    async def test_an_id_with_other_content_is_refused_and_numbers_nothing(
        self, session: str
    ) -> None:
        other = SessionMessage("m-0", "account.add", b'{"amount":99}')
        async with self.opening(OPTIONS) as producer:
            await producer.send(drafts(0, 1), session=session)
            with pytest.raises(ContentConflict, match="m-0"):
                await producer.send([*drafts(5, 1), other], session=session)
            following = drafts(1, 1)
            await producer.send(following, session=session)

        assert numbers(following) == [1]
        assert other.published_sequence_number is None

    async def test_a_closed_producer_sends_nothing(self, session: str) -> None:
        async with self.opening(OPTIONS) as producer:
            pass

        with pytest.raises(ProducerClosed):
            await producer.send(drafts(0, 1), session=session)
        with pytest.raises(ProducerClosed):
            await producer.create_batch(session)

    async def test_four_sessions_at_once_are_numbered_each_for_itself(self, session: str) -> None:
        four = {f"{session}-{n}": drafts(0, 3) for n in range(4)}
        async with self.opening(OPTIONS) as producer:
            await asyncio.gather(*(producer.send(own, session=s) for s, own in four.items()))

        assert [numbers(own) for own in four.values()] == [[0, 1, 2]] * 4
        for name, own in four.items():
            assert told(await self.sent("east", name, 3)) == expected(own)

"""The public producer keeps its promises on the in-memory twin: those of the contract, and more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain

import pytest

from shared.domain.errors import (
    AlreadyPublished,
    ContentConflict,
    InvalidClientState,
    ProducerClosed,
)
from shared.domain.message import Message
from shared.publishing.message import SessionMessage
from shared.publishing.options import (
    IdempotentProducerOptions,
    PartitionPublishingOptions,
    PartitionPublishingProperties,
)
from shared.publishing.producer import IdempotentProducer
from tests.contract.publishing import (
    OPTIONS,
    Opened,
    PublishingBasics,
    drafts,
    expected,
    numbers,
    told,
)
from tests.world import World


def starting(session: str, number: int) -> IdempotentProducerOptions:
    """Options of a caller that kept where its session goes on."""
    own = PartitionPublishingOptions(starting_sequence_number=number)
    return IdempotentProducerOptions("bank", partition_options={session: own})


class TestPublishingOnTheTwin(PublishingBasics):
    @pytest.fixture(autouse=True)
    def in_a_world(self) -> None:
        self.world = World()

    def opening(self, options: IdempotentProducerOptions) -> Opened:
        return opened(self.world, options)

    async def sent(self, region: str, session: str, how_many: int) -> list[Message]:
        found = [m for m in self.world.bus.messages(region, "in") if m.session == session]
        assert len(found) == how_many
        return found

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

    async def test_a_producer_without_a_group_is_assigned_one_for_its_life(
        self, session: str
    ) -> None:
        unnamed = IdempotentProducerOptions()
        async with self.opening(unnamed) as one, self.opening(unnamed) as other:
            sets = [drafts(10 * n, 2) for n in range(4)]
            for producer, own in zip((one, other, one, other), sets, strict=True):
                await producer.send(own, session=session)
            first, second = [
                await producer.get_partition_publishing_properties(session)
                for producer in (one, other)
            ]

        # Neither shares its numbers, and each keeps its group for as long as it lives.
        assert [numbers(own) for own in sets] == [[0, 1], [0, 1], [2, 3], [2, 3]]
        assert first.producer_group_id != second.producer_group_id
        assert {m.number.group for m in await self.sent("east", session, 8) if m.number} == {
            first.producer_group_id,
            second.producer_group_id,
        }
        # By its name another process goes on with the group, and knows what was sent before.
        async with self.opening(IdempotentProducerOptions(first.producer_group_id)) as resumed:
            again, more = drafts(0, 2), drafts(50, 1)
            await resumed.send(again, session=session)
            await resumed.send(more, session=session)
        assert [numbers(again), numbers(more)] == [[0, 1], [4]]

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


@asynccontextmanager
async def opened(
    world: World, options: IdempotentProducerOptions
) -> AsyncIterator[IdempotentProducer]:
    """A producer of its own, as `open_idempotent_producer` opens one."""
    producer = IdempotentProducer(world.producer(), options)
    yield producer
    await producer.close()

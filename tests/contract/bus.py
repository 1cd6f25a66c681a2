"""What every Bus promises. Subclasses bring a `bus` fixture and a way to see what arrived."""

from abc import ABC, abstractmethod
from typing import Protocol

import pytest

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message
from shared.ports import Browser, Bus
from tests.world import message


class BrowsableBus(Bus, Browser, Protocol):
    """A bus whose queues can be looked into."""


class BusContract[B: BrowsableBus](ABC):
    @abstractmethod
    async def received(self, bus: B, queue: str, session: str) -> list[Message]:
        """The visible messages of a session in region east, in order."""

    async def test_messages_arrive_whole_and_in_order(self, bus: B, session: str) -> None:
        sent = [message(n, session=session) for n in range(30)]

        await bus.send("east", "lockstep", sent[:20])
        await bus.send("east", "lockstep", sent[20:])

        assert await self.received(bus, "lockstep", session) == sent

    async def test_with_a_message_that_is_refused_no_other_is_taken(
        self, bus: B, session: str
    ) -> None:
        # More than one batch takes, so that some could be sent before the refusal.
        padding = b'"' + b"x" * 300_000 + b'"'
        fitting = [Message(f"m-{n}", session, "t", padding) for n in range(8)]
        huge = Message("m", session, "t", b'""')
        # Larger than a message may be: what a namespace with a smaller limit would see.
        object.__setattr__(huge, "body", b'"' + b"x" * 2_000_000 + b'"')

        for sent in ([huge], [*fitting, huge]):
            with pytest.raises(InvalidMessage, match="too large"):
                await bus.send("east", "lockstep", sent)

        assert await self.received(bus, "lockstep", session) == []

    async def test_a_look_at_a_queue_sends_nothing(self, bus: B, session: str) -> None:
        await bus.look("east", "lockstep")

        assert await self.received(bus, "lockstep", session) == []
        await bus.send("east", "lockstep", [message(0, session=session)])
        assert await self.received(bus, "lockstep", session) == [message(0, session=session)]

    async def test_a_delayed_message_is_not_visible_yet(self, bus: B, session: str) -> None:
        await bus.send("east", "lockstep", [message(0, session=session)], delay_seconds=60)

        assert await self.received(bus, "lockstep", session) == []

    async def test_a_look_into_a_session_takes_nothing(self, bus: B, session: str) -> None:
        sent = [message(n, session=session) for n in range(5)]
        await bus.send("east", "lockstep-errors", sent)

        first = await bus.browse_session("east", "lockstep-errors", session, 0, 2)
        above = first.messages[-1].sequence
        rest = await bus.browse_session("east", "lockstep-errors", session, above, 10)

        found = [*first.messages, *rest.messages]
        assert (len(first.messages), first.is_all, rest.is_all) == (2, False, True)
        assert [one.body for one in found] == [one.body for one in sent]
        shown = [(one.session, one.id, one.type) for one in found]
        assert shown == [(one.session, one.id, one.type) for one in sent]
        assert await self.received(bus, "lockstep-errors", session) == sent

    async def test_a_look_at_all_sessions_sees_every_message_each_time(
        self, bus: B, session: str
    ) -> None:
        # More sessions than are opened at once, so that one that is let go could come again.
        sent = [message(n, session=f"{session}-{m}") for m in range(12) for n in range(3)]
        for one in sent:
            await bus.send("east", "lockstep-errors", [one])

        for _ in range(2):
            found = await bus.browse_sessions("east", "lockstep-errors", 1_000)
            shown = [(one.session, one.id) for one in found.messages]
            ours = [one for one in shown if one[0].startswith(f"{session}-")]
            assert sorted(ours) == sorted((one.session, one.id) for one in sent)
            assert found.is_all
        assert not (await bus.browse_sessions("east", "lockstep-errors", 5)).is_all

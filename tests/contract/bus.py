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
        rest = await bus.browse_session("east", "lockstep-errors", session, first[-1].sequence, 10)

        found = [(one.session, one.id, one.type, one.body) for one in (*first, *rest)]
        assert found == [(one.session, one.id, one.type, one.body) for one in sent]
        assert await self.received(bus, "lockstep-errors", session) == sent

    async def test_several_sessions_show_their_first_message(self, bus: B, session: str) -> None:
        names = [f"{session}-{n}" for n in range(3)]
        for name in names:
            for n in range(2):
                await bus.send("east", "lockstep-errors", [message(n, session=name)])

        found = await bus.browse_sessions("east", "lockstep-errors", 0, 50)

        shown = {one.session: one.id for one in found if one.session in names}
        assert shown == {name: message(0, session=name).id for name in names}
        assert len(await bus.browse_sessions("east", "lockstep-errors", 1, 1)) == 1

"""What every Bus promises. Subclasses bring a `bus` fixture and a way to see what arrived."""

from abc import ABC, abstractmethod

from shared.domain.message import Message
from shared.ports import Bus
from tests.world import message


class BusContract[B: Bus](ABC):
    """The promises, one test each."""

    @abstractmethod
    async def received(self, bus: B, queue: str, session: str) -> list[Message]:
        """The visible messages of a session in region east, in order."""

    async def test_messages_arrive_whole_and_in_order(self, bus: B, session: str) -> None:
        sent = [message(n, session=session) for n in range(30)]

        await bus.send("east", "lockstep", sent[:20])
        await bus.send("east", "lockstep", sent[20:])

        assert await self.received(bus, "lockstep", session) == sent

    async def test_a_look_at_a_queue_sends_nothing(self, bus: B, session: str) -> None:
        await bus.look("east", "lockstep")

        assert await self.received(bus, "lockstep", session) == []
        await bus.send("east", "lockstep", [message(0, session=session)])
        assert await self.received(bus, "lockstep", session) == [message(0, session=session)]

    async def test_a_delayed_message_is_not_visible_yet(self, bus: B, session: str) -> None:
        await bus.send("east", "lockstep", [message(0, session=session)], delay_seconds=60)

        assert await self.received(bus, "lockstep", session) == []

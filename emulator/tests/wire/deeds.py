"""Deeds: what clients do to a cloud again and again, and what must be found of it afterwards.

They are done one after the other. So what is found is what so many of them leave behind, or one
more: the last, whose answer a kill cut off.
"""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core import MatchConditions
from azure.cosmos import ContainerProxy, CosmosClient
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)

SESSIONS, LATER, JOURNAL = "flights", "later", "journal"
STOCK = 1000  # messages that wait to be settled
PAGE = 250


class Clients(ExitStack):
    """Clients of a cloud, closed at the end."""

    def __init__(self, contract: dict[str, Any]) -> None:
        super().__init__()
        self._contract = contract

    def bus(self) -> ServiceBusClient:
        """A client of its own, which does not retry."""
        (connection,) = self._contract["servicebus"].values()
        client = ServiceBusClient.from_connection_string(connection, retry_total=0)
        return self.enter_context(client)

    def session(self, session: str) -> ServiceBusReceiver:
        """A receiver of a session."""
        client = self.bus()
        return self.enter_context(
            client.get_queue_receiver(SESSIONS, session_id=session, max_wait_time=60)
        )

    def container(self) -> ContainerProxy:
        """The journal."""
        cosmos = self._contract["cosmos"]
        client = self.enter_context(CosmosClient(cosmos["endpoint"], cosmos["key"]))
        database = client.get_database_client(cosmos["database"])
        container: ContainerProxy = database.get_container_client(JOURNAL)
        return container


class Deed(ABC):
    """One kind of deed, in its own session of this name."""

    def __init__(self, clients: Clients, name: str) -> None:
        self.clients = clients
        self.name = name

    @abstractmethod
    def prepare(self) -> None:
        """Make ready for the first."""

    @abstractmethod
    def do(self, number: int) -> None:
        """Do the next; returns when it was acknowledged."""

    @abstractmethod
    def found(self) -> object:
        """What there is of it now."""

    @abstractmethod
    def expected(self, done: int) -> object:
        """What there must be after so many."""


class Sends(Deed):
    """Sends messages to a session."""

    def prepare(self) -> None:
        self._sender = self.clients.bus().get_queue_sender(SESSIONS)

    def do(self, number: int) -> None:
        self._sender.send_messages(ServiceBusMessage(str(number), session_id=self.name))

    def found(self) -> object:
        return [str(message) for message in peek(self.clients.session(self.name))]

    def expected(self, done: int) -> object:
        return [str(number) for number in range(done)]


class Settlements(Deed):
    """Completes, dead-letters and defers messages of a session in turn."""

    def prepare(self) -> None:
        with self.clients.bus().get_queue_sender(SESSIONS) as sender:
            stock = [f"{self.name} {number}" for number in range(STOCK)]
            sender.send_messages([ServiceBusMessage(b, session_id=self.name) for b in stock])
        self._receiver = self.clients.session(self.name)
        self._messages: list[ServiceBusReceivedMessage] = []
        while len(self._messages) < STOCK:
            self._messages += self._receiver.receive_messages(STOCK - len(self._messages))

    def do(self, number: int) -> None:
        settlements = (
            self._receiver.complete_message,
            self._receiver.dead_letter_message,
            self._receiver.defer_message,
        )
        settlements[number % 3](self._messages[number])

    def found(self) -> object:
        dead = self.clients.bus().get_queue_receiver(
            SESSIONS, sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        with dead:
            texts = [str(message) for message in peek(dead)]
        left = peek(self.clients.session(self.name))
        return (
            [text for text in texts if text.startswith(f"{self.name} ")],
            [(str(message), message.state.name, message.delivery_count) for message in left],
        )

    def expected(self, done: int) -> object:
        return (
            [f"{self.name} {number}" for number in range(done) if number % 3 == 1],
            [
                (f"{self.name} {number}", "DEFERRED" if number < done else "ACTIVE", 0)
                for number in range(STOCK)
                if number >= done or number % 3 == 2
            ],
        )


class States(Deed):
    """Sets a session's state."""

    def prepare(self) -> None:
        self._session = self.clients.session(self.name).session

    def do(self, number: int) -> None:
        self._session.set_state(str(number))

    def found(self) -> object:
        return self.clients.session(self.name).session.get_state()

    def expected(self, done: int) -> object:
        return str(done - 1).encode() if done else None


class Schedules(Deed):
    """Schedules messages for tomorrow and cancels every other one."""

    def prepare(self) -> None:
        self._sender = self.clients.bus().get_queue_sender(LATER)
        self._last: list[int] = []

    def do(self, number: int) -> None:
        if number % 3 == 2:
            self._sender.cancel_scheduled_messages(self._last)
            return
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        message = ServiceBusMessage(f"{self.name} {number}")
        self._last = self._sender.schedule_messages(message, tomorrow)

    def found(self) -> object:
        with self.clients.bus().get_queue_receiver(LATER) as receiver:
            texts = [str(message) for message in peek(receiver)]
        return [text for text in texts if text.startswith(f"{self.name} ")]

    def expected(self, done: int) -> object:
        scheduled = [number for number in range(done) if number % 3 != 2]
        return [
            f"{self.name} {number}" for number in scheduled if number % 3 == 0 or number + 1 >= done
        ]


class Creates(Deed):
    """Creates items."""

    def prepare(self) -> None:
        self._container = self.clients.container()

    def do(self, number: int) -> None:
        self._container.create_item({"id": f"{number:06}", "session": self.name})

    def found(self) -> object:
        return ids(self.clients.container(), self.name)

    def expected(self, done: int) -> object:
        return [f"{number:06}" for number in range(done)]


class Replaces(Deed):
    """Replaces one item, each time on condition that nobody else did."""

    def prepare(self) -> None:
        self._container = self.clients.container()
        self._head = self._container.create_item({"id": "head", "session": self.name, "n": -1})

    def do(self, number: int) -> None:
        self._head = self._container.replace_item(
            "head",
            {"id": "head", "session": self.name, "n": number},
            etag=self._head["_etag"],
            match_condition=MatchConditions.IfNotModified,
        )

    def found(self) -> object:
        return self.clients.container().read_item("head", self.name)["n"]

    def expected(self, done: int) -> object:
        return done - 1


class Batches(Deed):
    """Creates two items and replaces a third in one batch."""

    def prepare(self) -> None:
        self._container = self.clients.container()
        self._container.create_item({"id": "head", "session": self.name, "n": -1})

    def do(self, number: int) -> None:
        created = [{"id": f"{number:06}{half}", "session": self.name} for half in "ab"]
        head = {"id": "head", "session": self.name, "n": number}
        self._container.execute_item_batch(
            [*(("create", (one,)) for one in created), ("replace", ("head", head))],
            partition_key=self.name,
        )

    def found(self) -> object:
        container = self.clients.container()
        return container.read_item("head", self.name)["n"], ids(container, self.name)

    def expected(self, done: int) -> object:
        created = [f"{number:06}{half}" for number in range(done) for half in "ab"]
        return done - 1, [*created, "head"]


KINDS: tuple[type[Deed], ...] = (
    Sends,
    Settlements,
    States,
    Schedules,
    Creates,
    Replaces,
    Batches,
)


def peek(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """All that can be seen, in the order of sequence numbers."""
    seen: list[ServiceBusReceivedMessage] = []
    while page := receiver.peek_messages(PAGE, sequence_number=after(seen)):
        seen += page
    return seen


def after(seen: list[ServiceBusReceivedMessage]) -> int:
    """The first sequence number that was not seen."""
    return (seen[-1].sequence_number or 0) + 1 if seen else 1


def ids(container: ContainerProxy, session: str) -> list[str]:
    """The ids of a session's items, in order."""
    found = container.query_items("SELECT VALUE c.id FROM c", partition_key=session)
    return sorted(map(str, found))

"""A link on which a client sends messages to an entity."""

from typing import Any

from proton import Condition as AmqpCondition
from proton import Delivery, Endpoint, Receiver, symbol

from local.servicebus.broker import Broker
from local.servicebus.encoding import Undecodable
from local.servicebus.entity import Entity
from local.servicebus.gate import Attempt, Wire
from local.servicebus.message import Message
from local.servicebus.refusal import Condition, Refused
from local.servicebus.sections import read_transfer

MESSAGE_BYTES_MAX = 1024 * 1024  # the Premium tier's limit, for a message and for a batch
# What a client may fill a batch up to: azure-servicebus does not count the batch's own envelope.
BATCH_BYTES_MAX = MESSAGE_BYTES_MAX - 4096
CREDIT = 500  # transfers a client may have under way on one link


class Inflow:
    """Reads whole transfers off a link and keeps the client in credit."""

    def __init__(self, link: Receiver) -> None:
        self._link = link

    def open(self) -> None:
        """Attach, and allow the client to send."""
        self._link.max_message_size = MESSAGE_BYTES_MAX
        self._link.open()
        self._link.flow(CREDIT)

    def read(self, delivery: Delivery) -> bytes | None:
        """The bytes of a transfer; None until all of it has arrived."""
        if delivery.readable and not (delivery.partial or delivery.aborted):
            data = self._link.recv(delivery.pending)
            self._link.advance()
            self._refill()
            return bytes(data or b"")
        if delivery.aborted or (delivery.settled and not delivery.readable):
            delivery.settle()
        return None

    def _refill(self) -> None:
        if self._link.credit < CREDIT // 2:
            self._link.flow(CREDIT - self._link.credit)


class Intake:
    """Every transfer is applied whole, or refused whole, and then settled with the outcome."""

    def __init__(self, link: Receiver, entity: Entity, broker: Broker, wire: Wire) -> None:
        self._link = link
        self._entity = entity
        self._broker = broker
        self._wire = wire
        self._inflow = Inflow(link)

    def open(self) -> None:
        """Attach. SDKs read from the property how large a batch they may build."""
        self._link.properties = {symbol("com.microsoft:max-message-batch-size"): BATCH_BYTES_MAX}
        self._inflow.open()

    def on_delivery(self, delivery: Delivery) -> None:
        """A transfer arrived, or a part of one."""
        data = self._inflow.read(delivery)
        if data is not None:
            self._take(delivery, data)

    def on_flow(self) -> None:
        """Credit is the receiver's to give."""

    def on_closed(self) -> None:
        """A sender leaves nothing behind."""

    def _take(self, delivery: Delivery, data: bytes) -> None:
        messages = read(data)
        self._broker.gate.run(
            Attempt(
                "send",
                lambda: self._send(messages),
                lambda result: settle(delivery, result),
                self._wire,
                count=1 if isinstance(messages, Refused) else len(messages),
                size=len(data),
            )
        )

    def _send(self, messages: list[Message] | Refused) -> None:
        if isinstance(messages, Refused):
            raise messages
        now = self._broker.now()
        self._entity.act(now, lambda: self._entity.store.send(messages, now))


def read(data: bytes) -> list[Message] | Refused:
    """The messages of a transfer, or why it cannot be taken."""
    if len(data) > MESSAGE_BYTES_MAX:
        return Refused(
            Condition.MESSAGE_SIZE_EXCEEDED, f"{len(data)} bytes, more than {MESSAGE_BYTES_MAX}"
        )
    try:
        return read_transfer(data)
    except (Undecodable, UnicodeDecodeError) as error:
        return Refused(Condition.DECODE_ERROR, str(error))


def settle(delivery: Delivery, result: Refused | None) -> None:
    """Tell the sender what became of its transfer, if it is still there."""
    if delivery.link.state & Endpoint.LOCAL_CLOSED:
        return
    if isinstance(result, Refused):
        # The info says nothing, but azure-servicebus cannot read an error of a send without one.
        info: Any = {symbol("refused-by"): "local-servicebus"}
        condition = AmqpCondition(result.condition.value, result.description, info)
        delivery.local.condition = condition
        delivery.update(Delivery.REJECTED)
    else:
        delivery.update(Delivery.ACCEPTED)
    delivery.settle()

"""Links over which clients send: transfers are taken, applied and settled with an outcome."""

from dataclasses import dataclass

from proton import Delivery, Endpoint, Receiver, symbol

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.amqp.message_format import Undecodable, Unserializable, read_transfer
from local.servicebus.broker import Broker, ClientConnection, ClientOperation
from local.servicebus.entities.entity import MessagingEntity
from local.servicebus.links.endpoint import LinkEndpoint, write_condition
from local.servicebus.message import BrokeredMessage

MESSAGE_BYTES_MAX = 1024 * 1024  # the Premium tier's limit, for a message and for a batch
# What a client may fill a batch up to: azure-servicebus does not count the batch's own envelope.
BATCH_BYTES_MAX = MESSAGE_BYTES_MAX - 4096
MAX_BATCH_SIZE = symbol("com.microsoft:max-message-batch-size")
CREDIT = 500  # transfers a client may have under way on one link (part 2, section 2.6.7)


@dataclass(eq=False)
class IncomingLink(LinkEndpoint):
    _link: Receiver

    def open(self) -> None:
        self._link.max_message_size = MESSAGE_BYTES_MAX
        self._link.open()
        self._link.flow(CREDIT)

    def read_transfer(self, delivery: Delivery) -> bytes | None:
        """The bytes of a transfer; None until all of its frames have arrived."""
        if delivery.readable and not (delivery.partial or delivery.aborted):
            data = self._link.recv(delivery.pending)
            self._link.advance()
            if self._link.credit < CREDIT // 2:
                self._link.flow(CREDIT - self._link.credit)
            return bytes(data or b"")
        if delivery.aborted or (delivery.settled and not delivery.readable):
            delivery.settle()
        return None


@dataclass(eq=False)
class MessageIncomingLink(IncomingLink):
    """Every transfer is applied whole, or refused whole, and then settled with the outcome."""

    _entity: MessagingEntity
    _broker: Broker
    _connection: ClientConnection

    def open(self) -> None:
        # SDKs read from this property how large a batch they may build.
        self._link.properties = {MAX_BATCH_SIZE: BATCH_BYTES_MAX}
        super().open()

    def on_delivery(self, delivery: Delivery) -> None:
        data = self.read_transfer(delivery)
        if data is None:
            return
        messages: list[BrokeredMessage] | AmqpError
        if len(data) > MESSAGE_BYTES_MAX:
            description = f"{len(data)} bytes, more than {MESSAGE_BYTES_MAX}"
            messages = AmqpError(ErrorCondition.MESSAGE_SIZE_EXCEEDED, description)
        else:
            try:
                messages = read_transfer(data, is_batch=self._connection.is_reading_batch)
            except Unserializable as error:
                # Azure's own condition for it, though the size is not what is wrong.
                messages = AmqpError(ErrorCondition.MESSAGE_SIZE_EXCEEDED, str(error))
            except (Undecodable, UnicodeDecodeError) as error:
                messages = AmqpError(ErrorCondition.DECODE_ERROR, str(error))
        self._broker.interceptor.execute(
            ClientOperation(
                "send",
                self._entity.name,
                lambda: self._send(messages),
                lambda result: settle_transfer(delivery, result),
                self._connection,
                count=len(messages) if isinstance(messages, list) else 1,
                size=len(data),
            )
        )

    def _send(self, messages: list[BrokeredMessage] | AmqpError) -> None:
        if isinstance(messages, AmqpError):
            raise messages
        now = self._broker.now()
        with self._entity.dispatching(now):
            self._entity.send(messages, now)


def settle_transfer(delivery: Delivery, result: AmqpError | None) -> None:
    """Settle with the outcome (part 3, section 3.4), if the client is still attached."""
    if delivery.link.state & Endpoint.LOCAL_CLOSED:
        return
    if isinstance(result, AmqpError):
        delivery.local.condition = write_condition(result)
        delivery.update(Delivery.REJECTED)
    else:
        delivery.update(Delivery.ACCEPTED)
    delivery.settle()

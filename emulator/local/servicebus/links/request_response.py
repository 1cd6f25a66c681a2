"""Requests and responses: the pairs of links over which `$cbs` and `$management` are used."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proton import Array, Delivery, Described, Endpoint, Message, Sender, Session

from local.servicebus.amqp.errors import UNREADABLE, AmqpError, ErrorCondition
from local.servicebus.links.endpoint import LinkEndpoint
from local.servicebus.links.incoming import IncomingLink, settle_transfer

type SendResponse = Callable[[Message], None]
type HandleRequest = Callable[[Message, SendResponse], None]
# The response links of one connection, by AMQP session and reply address.
type ResponseLinks = dict[tuple[Session, str], "ResponseLink"]


@dataclass(eq=False)
class ResponseLink(LinkEndpoint):
    """A link on which a client waits for responses. Proton keeps them until there is credit."""

    _link: Sender
    _responses: ResponseLinks

    def open(self) -> None:
        # Requests find it by the address its client gave it, and by its name: npm's on $cbs has no
        # address and asks for responses by name.
        for address in (self._link.name, self._link.remote_target.address or ""):
            self._responses[self._link.session, address] = self
        self._link.open()

    def send(self, response: Message) -> None:
        """Respond, already settled, if the client is still attached."""
        if self._link.state & Endpoint.LOCAL_CLOSED:
            return
        delivery = self._link.delivery(self._link.delivery_tag())
        self._link.stream(response.encode())
        self._link.advance()
        delivery.settle()

    def on_link_closed(self) -> None:
        for key in [key for key, link in self._responses.items() if link is self]:
            del self._responses[key]


def copy_binaries(value: Any) -> Any:
    """The same value with bytes in it where Proton has views of memory that ends with the message.

    What is asked for may be applied later than that, and a rule is kept.
    """
    match value:
        case memoryview():
            return bytes(value)
        case list():
            return [copy_binaries(one) for one in value]
        case dict():
            return {key: copy_binaries(one) for key, one in value.items()}
        case Described():
            return Described(value.descriptor, copy_binaries(value.value))
        case Array():
            return Array(value.descriptor, value.type, *map(copy_binaries, value.elements))
    return value


@dataclass(eq=False)
class RequestLink(IncomingLink):
    _handle_request: HandleRequest
    _responses: ResponseLinks

    def on_delivery(self, delivery: Delivery) -> None:
        data = self.read_transfer(delivery)
        if data is None:
            return
        request = Message()
        try:
            request.decode(data)
            # Without a reply-to (azure-servicebus on $cbs), both links have the node's own address.
            address = request.reply_to or self._link.remote_target.address or ""
            request_id = copy_binaries(request.id)
            request.body = copy_binaries(request.body)
            request.properties = copy_binaries(request.properties)
        except UNREADABLE as error:
            settle_transfer(delivery, AmqpError(ErrorCondition.DECODE_ERROR, str(error)))
            return
        settle_transfer(delivery, None)

        def respond(response: Message) -> None:
            link = self._responses.get((self._link.session, address))
            if link is not None:
                response.correlation_id = request_id
                link.send(response)

        self._handle_request(request, respond)

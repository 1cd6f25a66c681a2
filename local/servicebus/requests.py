"""Requests and responses: the pairs of links that `$cbs` and `$management` are spoken to over."""

from collections.abc import Callable

from proton import Delivery, Message, ProtonException, Receiver, Sender, Session, int32

from local.servicebus.intake import Inflow, settle
from local.servicebus.refusal import Condition, Refused

type Respond = Callable[[Message], None]
type Responder = Callable[[Message, Respond], None]


class ResponseOutlet:
    """A link on which a client waits for responses."""

    def __init__(self, link: Sender) -> None:
        self._link = link

    def open(self) -> None:
        """Attach."""
        self._link.open()

    def send(self, response: Message) -> None:
        """Answer; nothing is heard of the answer again."""
        delivery = self._link.delivery(self._link.delivery_tag())
        self._link.stream(response.encode())
        self._link.advance()
        delivery.settle()

    def on_flow(self) -> None:
        """Proton keeps answers until there is credit."""

    def on_delivery(self, delivery: Delivery) -> None:
        """Answers are settled when they are sent."""

    def on_closed(self) -> None:
        """Nothing is waiting."""


class ResponseOutlets:
    """The response links of one connection, by AMQP session and reply address."""

    def __init__(self) -> None:
        self._outlets: dict[tuple[Session, str], ResponseOutlet] = {}

    def add(self, link: Sender) -> ResponseOutlet:
        """Know a link by the address its client gave it."""
        outlet = ResponseOutlet(link)
        self._outlets[link.session, link.remote_target.address or ""] = outlet
        return outlet

    def find(self, session: Session, address: str) -> ResponseOutlet | None:
        """The link that has this address, or None."""
        return self._outlets.get((session, address))


class RequestIntake:
    """A link on which a client sends requests."""

    def __init__(self, link: Receiver, responder: Responder, responses: ResponseOutlets) -> None:
        self._link = link
        self._responder = responder
        self._responses = responses
        self._inflow = Inflow(link, self._take)

    def open(self) -> None:
        """Attach, and allow the client to send."""
        self._inflow.open()

    def on_delivery(self, delivery: Delivery) -> None:
        """A request arrived, or a part of one."""
        self._inflow.on_delivery(delivery)

    def on_flow(self) -> None:
        """Credit is the receiver's to give."""

    def on_closed(self) -> None:
        """Nothing is waiting."""

    def _take(self, delivery: Delivery, data: bytes) -> None:
        request = Message()
        try:
            request.decode(data)
        except ProtonException as error:
            settle(delivery, Refused(Condition.DECODE_ERROR, str(error)))
            return
        settle(delivery, None)
        self._responder(request, lambda response: self._respond(request, response))

    def _respond(self, request: Message, response: Message) -> None:
        # Without a reply address (azure-servicebus on $cbs), both links have the node's own.
        address = request.reply_to or self._link.remote_target.address or ""
        outlet = self._responses.find(self._link.session, address)
        if outlet is not None:
            response.correlation_id = request.id
            outlet.send(response)


def authorize(request: Message, respond: Respond) -> None:  # noqa: ARG001
    """Take any token: this service listens on loopback and guards nothing."""
    properties = {"status-code": int32(202), "status-description": "Accepted"}
    respond(Message(properties=properties))

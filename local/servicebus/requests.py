"""Requests and responses: the pairs of links that `$cbs` and `$management` are spoken to over."""

from collections.abc import Callable

from proton import Delivery, Endpoint, Message, ProtonException, Receiver, Sender, Session

from local.servicebus.intake import Inflow, settle
from local.servicebus.refusal import Condition, Refused

type Respond = Callable[[Message], None]
type Responder = Callable[[Message, Respond], None]


class ResponseOutlet:
    """A link on which a client waits for responses."""

    def __init__(self, link: Sender, forget: Callable[["ResponseOutlet"], None]) -> None:
        """`forget` is called when the link is gone."""
        self._link = link
        self._forget = forget

    def open(self) -> None:
        """Attach."""
        self._link.open()

    def send(self, response: Message) -> None:
        """Answer, if the client still waits; nothing is heard of the answer again."""
        if self._link.state & Endpoint.LOCAL_CLOSED:
            return
        delivery = self._link.delivery(self._link.delivery_tag())
        self._link.stream(response.encode())
        self._link.advance()
        delivery.settle()

    def on_flow(self) -> None:
        """Proton keeps answers until there is credit."""

    def on_delivery(self, delivery: Delivery) -> None:
        """Answers are settled when they are sent."""

    def on_closed(self) -> None:
        """No more answers can be sent."""
        self._forget(self)


class ResponseOutlets:
    """The response links of one connection, by AMQP session and reply address."""

    def __init__(self) -> None:
        self._outlets: dict[tuple[Session, str], ResponseOutlet] = {}

    def add(self, link: Sender) -> ResponseOutlet:
        """Know a link by the address its client gave it, and by its name: npm's on $cbs has no
        address and asks for answers by name."""
        outlet = ResponseOutlet(link, self._forget)
        for address in (link.name, link.remote_target.address or ""):
            self._outlets[link.session, address] = outlet
        return outlet

    def find(self, session: Session, address: str) -> ResponseOutlet | None:
        """The link that has this address, or None."""
        return self._outlets.get((session, address))

    def _forget(self, outlet: ResponseOutlet) -> None:
        self._outlets = {key: one for key, one in self._outlets.items() if one is not outlet}


class RequestIntake:
    """A link on which a client sends requests."""

    def __init__(self, link: Receiver, responder: Responder, responses: ResponseOutlets) -> None:
        self._link = link
        self._responder = responder
        self._responses = responses
        self._inflow = Inflow(link)

    def open(self) -> None:
        """Attach, and allow the client to send."""
        self._inflow.open()

    def on_delivery(self, delivery: Delivery) -> None:
        """A request arrived, or a part of one."""
        data = self._inflow.read(delivery)
        if data is not None:
            self._take(delivery, data)

    def on_flow(self) -> None:
        """Credit is the receiver's to give."""

    def on_closed(self) -> None:
        """Nothing is waiting."""

    def _take(self, delivery: Delivery, data: bytes) -> None:
        request = Message()
        try:
            request.decode(data)
        except (ProtonException, TypeError, ValueError) as error:
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

"""Which endpoint a link that a client attaches gets, by its role and its address."""

from typing import cast

from proton import Link, Receiver, Sender

from local.servicebus.broker import Broker, ClientConnection
from local.servicebus.entities.catalog import EntityCatalog
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import MessagingEntity
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.topic import Topic
from local.servicebus.links.endpoint import LinkEndpoint
from local.servicebus.links.incoming import MessageIncomingLink
from local.servicebus.links.outgoing import PlainOutgoingLink
from local.servicebus.links.session_outgoing import SessionOutgoingLink, has_session_filter
from local.servicebus.protocol.authorization import SasAuthorization
from local.servicebus.protocol.errors import AmqpError, ErrorCondition
from local.servicebus.protocol.management import ManagementNode
from local.servicebus.protocol.request_response import (
    HandleRequest,
    RequestLink,
    ResponseLink,
    ResponseLinks,
)

CBS, MANAGEMENT_SUFFIX = "$cbs", "/$management"


class LinkAttacher:
    """Makes the endpoints of one connection's links."""

    def __init__(
        self, catalog: EntityCatalog, broker: Broker, connection: ClientConnection
    ) -> None:
        self._catalog = catalog
        self._broker = broker
        self._connection = connection
        self._authorization = SasAuthorization(broker)
        self._responses: ResponseLinks = {}

    def attach(self, link: Link) -> LinkEndpoint:
        """The endpoint for a link; refused when there is no such node, or it cannot do that."""
        address = link.remote_target.address if link.is_receiver else link.remote_source.address
        _, scheme, rest = (address or "").rpartition("://")
        path = rest.partition("/")[2] if scheme else rest  # the host does not matter
        if path.lower() == CBS:
            return self._attach_request_link(link, self._authorization.handle_request)
        self._authorization.check(path)
        is_management = path.lower().endswith(MANAGEMENT_SUFFIX)
        try:
            entity = self._catalog.find(path[: -len(MANAGEMENT_SUFFIX)] if is_management else path)
        except KeyError:
            raise AmqpError(
                ErrorCondition.NOT_FOUND, f"The messaging entity {path!r} could not be found"
            ) from None
        if is_management:
            management = ManagementNode(entity, self._broker, self._connection)
            return self._attach_request_link(link, management.handle_request)
        if link.is_sender:
            return self._attach_outgoing(cast(Sender, link), entity)
        if not entity.takes_messages:
            raise AmqpError(
                ErrorCondition.NOT_ALLOWED, f"Nothing can be sent to {entity.kind.value}"
            )
        return MessageIncomingLink(cast(Receiver, link), entity, self._broker, self._connection)

    def _attach_request_link(self, link: Link, handle_request: HandleRequest) -> LinkEndpoint:
        if link.is_sender:
            return ResponseLink(cast(Sender, link), self._responses)
        return RequestLink(cast(Receiver, link), handle_request, self._responses)

    def _attach_outgoing(self, link: Sender, entity: MessagingEntity) -> LinkEndpoint:
        match entity, has_session_filter(link):
            case SessionQueue() as queue, True:
                return SessionOutgoingLink(link, queue, self._broker, self._connection)
            case PlainQueue() as queue, False:
                return PlainOutgoingLink(link, queue, self._broker, self._connection)
            case Topic(), _:
                reason = "A topic cannot be received from, but its subscriptions"
            case SessionQueue() as queue, False:
                reason = f"{queue.name} requires sessions: a receiver must ask for one"
            case _:
                reason = "There are no sessions in this entity"
        raise AmqpError(ErrorCondition.NOT_ALLOWED, reason)

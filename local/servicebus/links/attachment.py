"""Which endpoint a link that a client attaches gets, by its role and its address."""

from typing import cast

from proton import Link, Receiver, Sender

from local.servicebus.broker import Broker, ClientConnection
from local.servicebus.entities.catalog import (
    CBS,
    AddressedNode,
    EntityCatalog,
    NodeKind,
    path_of,
)
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.topic import Topic
from local.servicebus.links.endpoint import LinkEndpoint
from local.servicebus.links.incoming import MessageIncomingLink
from local.servicebus.links.outgoing import PlainOutgoingLink
from local.servicebus.links.session_outgoing import SessionOutgoingLink, has_session_filter
from local.servicebus.protocol.authorization import SasAuthorization
from local.servicebus.protocol.errors import AmqpError, ErrorCondition
from local.servicebus.protocol.management import ManagementNode
from local.servicebus.protocol.request_response import RequestLink, ResponseLinks


class LinkAttacher:
    """Makes the endpoints of one connection's links."""

    def __init__(
        self, catalog: EntityCatalog, broker: Broker, connection: ClientConnection
    ) -> None:
        self._catalog = catalog
        self._broker = broker
        self._connection = connection
        self._authorization = SasAuthorization(broker)
        self._responses = ResponseLinks()

    def attach(self, link: Link) -> LinkEndpoint:
        """The endpoint for a link; refused when there is no such node, or it cannot do that."""
        address = link.remote_target.address if link.is_receiver else link.remote_source.address
        path = path_of(address)
        if path != CBS:
            self._authorization.check(path)
        node = self._catalog.find_node(path)
        if link.is_receiver:
            return self._attach_incoming(cast(Receiver, link), node)
        if node.kind is not NodeKind.MESSAGES:
            return self._responses.add(cast(Sender, link))
        return self._attach_outgoing(cast(Sender, link), node)

    def _attach_incoming(self, link: Receiver, node: AddressedNode) -> LinkEndpoint:
        match node:
            case AddressedNode(NodeKind.MANAGEMENT, entity) if entity is not None:
                management = ManagementNode(entity, self._broker, self._connection)
                return RequestLink(link, management.handle_request, self._responses)
            case AddressedNode(NodeKind.MESSAGES, entity) if entity is not None:
                if entity.takes_messages:
                    return MessageIncomingLink(link, entity, self._broker, self._connection)
                raise AmqpError(
                    ErrorCondition.NOT_ALLOWED, f"Nothing can be sent to {entity.kind.value}"
                )
        return RequestLink(link, self._authorization.handle_request, self._responses)

    def _attach_outgoing(self, link: Sender, node: AddressedNode) -> LinkEndpoint:
        match node.entity, has_session_filter(link):
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

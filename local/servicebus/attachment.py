"""Attaching: which end a client's link gets, by what it wants from which node."""

from typing import Protocol, cast

from proton import Delivery, Link, Receiver, Sender

from local.servicebus.authorization import Authorization
from local.servicebus.broker import Broker
from local.servicebus.directory import CBS, Directory, Kind, Node, path_of
from local.servicebus.entity import Entity, PlainEntity, SessionEntity, TopicEntity
from local.servicebus.gate import Wire
from local.servicebus.intake import Intake
from local.servicebus.management import Management
from local.servicebus.plain_outlet import PlainOutlet
from local.servicebus.refusal import Condition, Refused
from local.servicebus.requests import RequestIntake, Responder, ResponseOutlets
from local.servicebus.session_outlet import SessionOutlet, has_filter


class LinkEnd(Protocol):
    """The service's end of a link."""

    def open(self) -> None:
        """Attach, at once or when there is reason to."""
        ...

    def on_flow(self) -> None:
        """Credit has changed."""
        ...

    def on_delivery(self, delivery: Delivery) -> None:
        """Something came, or the client has decided about something it was sent."""
        ...

    def on_closed(self) -> None:
        """The client has detached, or is gone."""
        ...


class Attaching:
    """Makes the service's ends of one connection's links."""

    def __init__(self, directory: Directory, broker: Broker, wire: Wire) -> None:
        self._directory = directory
        self._broker = broker
        self._wire = wire
        self._authorization = Authorization(broker)
        self._responses = ResponseOutlets()

    def attach(self, link: Link) -> LinkEnd:
        """The end for a link; refused when there is no such node, or it cannot do that."""
        if link.is_receiver:
            node = self._find(link.remote_target.address)
            return self._intake(cast(Receiver, link), node)
        node = self._find(link.remote_source.address)
        return self._outlet(cast(Sender, link), node)

    def _find(self, address: str | None) -> Node:
        path = path_of(address)
        if path != CBS:
            self._authorization.check(path)
        return self._directory.find(path)

    def _intake(self, link: Receiver, node: Node) -> LinkEnd:
        if node.kind is not Kind.MESSAGES:
            return RequestIntake(link, self._responder(node), self._responses)
        if node.entity is None or not node.entity.takes_messages:
            raise Refused(Condition.NOT_ALLOWED, f"Nothing can be sent to {role_of(node)}")
        return Intake(link, node.entity, self._broker, self._wire)

    def _responder(self, node: Node) -> Responder:
        if node.kind is Kind.AUTHORIZATION or node.entity is None:
            return self._authorization.respond
        return Management(node.entity, self._broker, self._wire).respond

    def _outlet(self, link: Sender, node: Node) -> LinkEnd:
        if node.kind is not Kind.MESSAGES:
            return self._responses.add(link)
        return self._consumer(link, node.entity)

    def _consumer(self, link: Sender, entity: Entity | None) -> LinkEnd:
        match entity, has_filter(link):
            case SessionEntity(), True:
                return SessionOutlet(link, entity, self._broker, self._wire)
            case PlainEntity(), False:
                return PlainOutlet(link, entity, self._broker, self._wire)
            case TopicEntity(), _:
                raise Refused(
                    Condition.NOT_ALLOWED, "A topic cannot be received from, but its subscriptions"
                )
            case SessionEntity(), False:
                raise Refused(
                    Condition.NOT_ALLOWED,
                    f"{entity.name} requires sessions: a receiver must ask for one",
                )
        raise Refused(Condition.NOT_ALLOWED, "There are no sessions in this entity")


def role_of(node: Node) -> str:
    """What stands at a node, for a sentence."""
    return "this node" if node.entity is None else node.entity.role.value

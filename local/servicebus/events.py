"""The events of a connection that mean something to the service.

Proton tells of everything, half of it only that there are bytes to write, and its Python binding
wraps five objects around each event, most of them never looked at. So an event's type is looked at
first, and then only what it is about is wrapped.
"""

from collections.abc import Iterator
from typing import Any

from cproton import (  # type: ignore[import-untyped]
    isnull,
    pn_collector_peek,
    pn_event_delivery,
    pn_event_link,
    pn_event_session,
    pn_event_type,
)
from proton import Collector, Delivery, Event, EventType, Link, Session

type Subject = Delivery | Link | Session | None


def read_nothing(_: Any) -> None:
    """There is one connection: an event needs not say which."""


def read_session(event: Any) -> Subject:
    """The AMQP session an event is about."""
    found: Subject = Session.wrap(pn_event_session(event))  # type: ignore[no-untyped-call]
    return found


def read_link(event: Any) -> Subject:
    """The link an event is about."""
    found: Subject = Link.wrap(pn_event_link(event))  # type: ignore[no-untyped-call]
    return found


def read_delivery(event: Any) -> Subject:
    """The delivery an event is about."""
    found: Subject = Delivery.wrap(pn_event_delivery(event))  # type: ignore[no-untyped-call]
    return found


READERS = {
    Event.CONNECTION_REMOTE_OPEN: read_nothing,
    Event.CONNECTION_REMOTE_CLOSE: read_nothing,
    Event.SESSION_REMOTE_OPEN: read_session,
    Event.SESSION_REMOTE_CLOSE: read_session,
    Event.LINK_REMOTE_OPEN: read_link,
    Event.LINK_REMOTE_CLOSE: read_link,
    Event.LINK_REMOTE_DETACH: read_link,
    Event.LINK_FLOW: read_link,
    Event.DELIVERY: read_delivery,
}
HEARD = {kind.number: (kind, reader) for kind, reader in READERS.items()}


def events(collector: Collector) -> Iterator[tuple[EventType, Subject]]:
    """Take the events that are heard, each with what it is about, as long as there are any."""
    while not isnull(event := pn_collector_peek(collector._impl)):
        heard = HEARD.get(pn_event_type(event))
        if heard is not None:
            kind, reader = heard
            yield kind, reader(event)
        collector.pop()

"""The options of an attach (AMQP 1.0, 2.7.3 and 3.5.3): honoured, of no effect, or refused.

The answer says what is in force: it repeats the addresses, and nothing that has no effect here.
"""

from typing import Any

from proton import Link, Sender, Terminus, symbol

from local.servicebus.amqp.errors import UNREADABLE, AmqpError, ErrorCondition

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
SESSION_FILTER = symbol("com.microsoft:session-filter")
TIMEOUT = symbol("com.microsoft:timeout")  # in milliseconds
# By which a sender asks that its messages go on to another entity.
TRANSFER_DESTINATION = symbol("com.microsoft:transfer-destination-address")


def answer_attach(link: Link) -> None:
    """Write into the answer what is in force; raises AmqpError where the link must not be."""
    termini = ((link.source, link.remote_source), (link.target, link.remote_target))
    for own, asked in termini:
        own.type = asked.type
    link.snd_settle_mode = link.remote_snd_settle_mode
    # As a receiver the broker settles with its outcome, whatever a sender asks for.
    link.rcv_settle_mode = link.remote_rcv_settle_mode if link.is_sender else Link.RCV_FIRST
    try:
        _ = link.name  # Proton takes any bytes, and its Python binding raises where it reads them
        for own, asked in termini:
            own.address = asked.address  # type: ignore[assignment]  # None is right, too
        refuse_unhonoured(link)
        if isinstance(link, Sender):
            refuse_filters(link)
    except UNREADABLE as error:
        raise AmqpError(ErrorCondition.DECODE_ERROR, f"An attach is unreadable: {error}") from error


def refuse_unhonoured(link: Link) -> None:
    """Raise AmqpError for what would be understood as done if it were passed over."""
    source, target = link.remote_source, link.remote_target
    reason = None
    if target.type == Terminus.COORDINATOR:
        reason = "Transactions are not honoured"
    elif source.dynamic or target.dynamic:
        reason = "Dynamic nodes are not honoured: name a queue that there is"
    elif link.is_sender and source.distribution_mode == Terminus.DIST_MODE_COPY:
        reason = "The distribution mode copy is not honoured: peek the messages instead"
    elif TRANSFER_DESTINATION in read_properties(link):
        reason = f"Sending by way of another entity ({TRANSFER_DESTINATION}) is not honoured"
    if reason is not None:
        raise AmqpError(ErrorCondition.NOT_IMPLEMENTED, reason)


def read_properties(link: Link) -> dict[Any, Any]:
    """The properties of an attach, with a timeout that is a number; raises AmqpError otherwise."""
    given = {} if link.remote_properties is None else link.remote_properties
    if not isinstance(given, dict):
        raise AmqpError(ErrorCondition.DECODE_ERROR, "The properties of a link are no map")
    if not isinstance(given.get(TIMEOUT), int | float | None):
        raise AmqpError(ErrorCondition.DECODE_ERROR, f"{TIMEOUT} is no number")
    return given


def refuse_filters(link: Sender) -> None:
    """Raise AmqpError, with Azure's words, for a filter that would not be applied.

    Azure.Messaging.ServiceBus reads what stands behind the last apostrophe to tell whether its
    filter of a session that is not exclusive was refused, so none may follow that of the name.
    """
    given = read_filters(link)
    unknown = [name_filter(key, given[key]) for key in given if key != SESSION_FILTER]
    if unknown:
        description = (
            f"The link '{link.name}' contains invalid filter type. System only support Jms or "
            f"Apache selector filter type. Here only {SESSION_FILTER} is honoured, and so not "
            f"{', '.join(unknown)}"
        )
        raise AmqpError(ErrorCondition.NOT_ALLOWED, description)


def name_filter(key: str, value: object) -> str:
    """The name of a filter, with its type where that is told by a symbol."""
    kind = getattr(value, "descriptor", None)
    name = f"{key} ({kind})" if isinstance(kind, str) and kind != key else key
    return name.replace("'", "")


def read_filters(link: Sender) -> dict[str, object]:
    """The filter set of a link's source; some clients describe the values, some do not."""
    data = link.remote_source.filter
    data.rewind()
    given = data.get_object() if data.next() is not None else None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise AmqpError(ErrorCondition.DECODE_ERROR, "The filters of a link are no map")
    return {str(key): value for key, value in given.items()}


def path_of_node(link: Link) -> str:
    """The path of the node that a client attaches to."""
    address = link.remote_target.address if link.is_receiver else link.remote_source.address
    _, scheme, rest = (address or "").rpartition("://")
    path = rest.partition("/")[2] if scheme else rest  # the host does not matter
    return path.strip("/")  # .NET's begin with one

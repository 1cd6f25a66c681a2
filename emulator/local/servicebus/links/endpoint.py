"""The common part of the broker's ends of clients' links."""

from typing import Any

from proton import Condition, Delivery, Link, Terminus, symbol

from local.servicebus.amqp.errors import AmqpError


class LinkEndpoint:
    """The broker's end of one link, called with Proton's reports; what it leaves out is ignored."""

    def open(self) -> None:
        raise NotImplementedError

    def on_link_flow(self) -> None:
        """The client gave or took back credit, or asked to drain it (part 2, section 2.6.7)."""

    def on_delivery(self, delivery: Delivery) -> None:
        """A transfer arrived, or the client has updated a delivery it was sent."""

    def on_link_closed(self) -> None:
        """The client has detached, or is gone."""


def refuse_link(link: Link, refusal: AmqpError) -> None:
    """Detach a link with an error, before or after it was attached."""
    if link.state & Link.LOCAL_UNINIT:
        # An attach is refused by leaving out the terminus that was asked for, then detaching with
        # the error (part 2, section 2.6.3). azure-servicebus takes any other attach for a success.
        wanted = link.source if link.is_sender else link.target
        wanted.type = Terminus.UNSPECIFIED
        link.open()
    link.condition = write_condition(refusal)
    link.close()


def write_condition(refusal: AmqpError) -> Condition:
    # The info means nothing, but azure-servicebus cannot read an error of a send or of a connection
    # without one, and Proton leaves out an empty one.
    info: Any = {symbol("refused-by"): "local-servicebus"}
    return Condition(refusal.condition.value, refusal.description, info)

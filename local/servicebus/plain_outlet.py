"""A receiver link on a plain queue."""

from proton import Delivery, Sender

from local.servicebus.broker import Broker
from local.servicebus.entity import PlainEntity
from local.servicebus.gate import Wire
from local.servicebus.outlet import Outlet


class PlainOutlet:
    """Waits in line with the queue's other consumers while it has credit."""

    def __init__(self, link: Sender, entity: PlainEntity, broker: Broker, wire: Wire) -> None:
        self._link = link
        self._entity = entity
        self._broker = broker
        self._wire = wire
        self._outlet = Outlet(link, entity, broker, wire)

    def open(self) -> None:
        """Attach; the client gives credit later."""
        self._link.open()

    def on_flow(self) -> None:
        """The client gave or took back credit."""
        if self._link.credit > 0:
            self._entity.wait(self)
        else:
            self._entity.stop_waiting(self)
        self._entity.advance(self._broker.now())
        if self._link.drain_mode:
            self._link.drained()
            self._entity.stop_waiting(self)

    def on_delivery(self, delivery: Delivery) -> None:
        """The client has decided about a delivery."""
        self._outlet.on_delivery(delivery)

    def on_closed(self) -> None:
        """What was delivered stays locked until its lock runs out, as in Azure."""
        self._entity.stop_waiting(self)

    def deliver_one(self, now: float) -> bool:
        """Deliver one message; returns whether more can be delivered."""
        stored = self._entity.queue.receive(now)
        if stored is not None:
            self._outlet.send(stored, now)
            self._wire.touch()
        return self._link.credit > 0 and self._wire.is_open

"""A link on which a client receives messages: what outlets of both kinds of queue share."""

from uuid import UUID

from proton import Condition as AmqpCondition
from proton import Delivery, Endpoint, Link, Sender, Terminus, symbol

from local.faults import Action, Fault
from local.servicebus.broker import Broker
from local.servicebus.entity import QueueEntity
from local.servicebus.gate import Attempt, Wire
from local.servicebus.message import DeadLetter, Settlement, StoredMessage
from local.servicebus.refusal import Condition, Refused
from local.servicebus.sections import delivery_tag, write_delivery

REASON, DESCRIPTION = symbol("DeadLetterReason"), symbol("DeadLetterErrorDescription")


class Outlet:
    """Writes deliveries to a link and applies what the client decides about them."""

    def __init__(self, link: Sender, entity: QueueEntity, broker: Broker, wire: Wire) -> None:
        self.link = link
        self._entity = entity
        self._broker = broker
        self._wire = wire
        # A client that settles on arrival (receive-and-delete) is never heard of again.
        self._deletes = link.remote_snd_settle_mode == Link.SND_SETTLED

    def send(self, stored: StoredMessage, now: float) -> None:
        """Deliver a locked message, as faithfully as a fault allows."""
        if stored.lock is None:
            return
        token = stored.lock.token
        match self._broker.gate.strike_delivery():
            case Fault(action=Action.DOWN | Action.DROP_CONNECTION):
                self._wire.hang_up()
                return
            case Fault(action=Action.LOSE_LOCK, seconds=seconds):
                self._broker.later(seconds, lambda: self._lose_lock(token))
            case Fault(action=Action.DUPLICATE):
                stored.comes_again = True
        self._transfer(stored, token, now)

    def on_delivery(self, delivery: Delivery) -> None:
        """The client has decided about a delivery."""
        if not delivery.updated:
            return
        token: UUID = delivery.lock_token
        try:
            settlement, dead_letter = read_settlement(delivery)
        except Refused as refusal:
            self._echo(delivery, refusal)
            return
        if settlement is not None:
            self._broker.gate.run(
                Attempt(
                    settlement.value,
                    lambda: self._settle(token, settlement, dead_letter),
                    lambda result: self._echo(delivery, result),
                    self._wire,
                    lose_lock=lambda: self._lose_lock(token),
                )
            )

    def _transfer(self, stored: StoredMessage, token: UUID, now: float) -> None:
        payload = write_delivery(stored)
        # The binding declares str and takes bytes as they are; a lock token is no UTF-8.
        delivery = self.link.delivery(delivery_tag(token))  # type: ignore[arg-type]
        delivery.lock_token = token
        self.link.stream(payload)
        self.link.advance()
        if self._deletes:
            self._entity.store.settle(token, Settlement.COMPLETE, now)
            delivery.settle()
        self._broker.gate.count("deliver", size=len(payload))

    def _echo(self, delivery: Delivery, result: Refused | None) -> None:
        """Settle with the client's own outcome, or rejected with the reason why not.

        On a link that was detached meanwhile nothing is said: the detaching gave the reason.
        """
        if self.link.state & Endpoint.LOCAL_CLOSED:
            return
        outcome = delivery.remote_state
        if isinstance(result, Refused):
            delivery.local.condition = AmqpCondition(result.condition.value, result.description)
            outcome = Delivery.REJECTED
        elif outcome == Delivery.MODIFIED:
            delivery.local.failed = delivery.remote.failed
            delivery.local.undeliverable = delivery.remote.undeliverable
        delivery.update(outcome)
        delivery.settle()

    def _settle(self, token: UUID, settlement: Settlement, why: DeadLetter | None) -> None:
        now = self._broker.now()
        self._entity.act(now, lambda: self._entity.store.settle(token, settlement, now, why))

    def _lose_lock(self, token: UUID) -> None:
        now = self._broker.now()
        self._entity.act(now, lambda: self._entity.store.lose_lock(token, now))


def read_settlement(delivery: Delivery) -> tuple[Settlement | None, DeadLetter | None]:
    """What the client decided; None while it has not. Section 3.4 of part 3 lists the outcomes."""
    match delivery.remote_state:
        case Delivery.ACCEPTED:
            return Settlement.COMPLETE, None
        case Delivery.RELEASED:
            return Settlement.RELEASE, None
        case Delivery.REJECTED:
            return Settlement.DEAD_LETTER, read_dead_letter(delivery)
        case Delivery.MODIFIED if delivery.remote.annotations:
            raise Refused(Condition.NOT_IMPLEMENTED, "properties to modify are not honoured")
        case Delivery.MODIFIED if delivery.remote.undeliverable:
            return Settlement.DEFER, None
        case Delivery.MODIFIED:
            # Whether or not it says that the delivery failed: npm's client does not.
            return Settlement.ABANDON, None
    return (Settlement.RELEASE if delivery.settled else None), None


def read_dead_letter(delivery: Delivery) -> DeadLetter:
    """The reason and description that came with a rejection."""
    condition = delivery.remote.condition
    info = None if condition is None else condition.info
    texts = info if isinstance(info, dict) else {}
    return DeadLetter(text(texts.get(REASON)), text(texts.get(DESCRIPTION)))


def text(value: object) -> str | None:
    """A value as text, if there is one."""
    return None if value is None else str(value)


def refuse(link: Link, refusal: Refused) -> None:
    """Detach a link with an error, before or after it was attached."""
    if link.state & Link.LOCAL_UNINIT:
        # An attach is refused by leaving out what was asked for, then detaching with the reason
        # (part 2, section 2.6.3). azure-servicebus takes any other attach for a success.
        wanted = link.source if link.is_sender else link.target
        wanted.type = Terminus.UNSPECIFIED
        link.open()
    link.condition = AmqpCondition(refusal.condition.value, refusal.description)
    link.close()

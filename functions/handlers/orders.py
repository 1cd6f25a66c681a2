"""Orders over several lines: stock is reserved, approval awaited, the account charged, all shipped.

Each participant is a session of its own and keeps only what is open: an order, the stock of a
product, a customer's account. The saga `order.place` takes an order through them, all or nothing.
A participant that cannot do its part answers a Refusal, and changes nothing.
"""

from typing import Literal

from pydantic import BaseModel, Field

from lockstep import (
    Command,
    Context,
    Handled,
    Handlers,
    Plan,
    Refusal,
    SagaKinds,
    Stage,
    Step,
    Wait,
    key_of,
)

APPROVAL_SECONDS_MAX = 2 * 24 * 3600
# The sessions of each participant: no other type may touch what they keep.
ORDERS, STOCK, ACCOUNTS = "order:*", "stock:*", "account:*"

handlers = Handlers()
sagas = SagaKinds(handlers)


class Line(BaseModel):
    """The number of pieces of a product that are ordered."""

    product: str = Field(min_length=1)
    quantity: int = Field(gt=0)


class PlaceOrder(BaseModel):
    """An order as its customer places it; one that needs approval waits for it so many seconds."""

    customer: str = Field(min_length=1)
    lines: list[Line] = Field(min_length=1, max_length=50)
    amount: int = Field(ge=0)
    approval_seconds: float = Field(default=0, ge=0, le=APPROVAL_SECONDS_MAX)


class Submit(BaseModel):
    """The first command to an order document."""

    customer: str
    amount: int


class Nothing(BaseModel):
    """A command without content."""


class Order(BaseModel):
    """An order document."""

    status: Literal["new", "submitted", "cancelled", "completed"] = "new"
    customer: str | None = None
    amount: int = 0


class ReceivedStock(BaseModel):
    """Goods that came in."""

    quantity: int = Field(gt=0)


class Reservation(BaseModel):
    """The pieces of a product that an order wants."""

    order: str
    quantity: int = Field(gt=0)


class Stock(BaseModel):
    """The stock of a product; only reservations that are open are listed."""

    received: int = 0
    left: int = 0
    shipped: int = 0
    reserved: dict[str, int] = {}


class Amount(BaseModel):
    """Money, in the smallest unit."""

    amount: int = Field(ge=0)


class Account(BaseModel):
    """A customer's money: what is left, and what was paid for orders."""

    balance: int = 0
    paid: int = 0


@sagas.register("order.place", body=PlaceOrder)
def place(order: PlaceOrder, context: Context) -> Plan:
    """Submit, reserve every line, wait if need be, charge: from then on only onward."""
    name = key_of(context.message.session) or ""
    wanted = quantities(order.lines)
    approval = Wait(
        name="approval",
        onward=("approved",),
        back=("rejected",),
        seconds=order.approval_seconds or 1,
    )
    return Plan(
        parts=(
            Stage(steps=(submitting(name, order),)),
            Stage(steps=tuple(reserving(name, *line) for line in wanted.items())),
            *((approval,) if order.approval_seconds else ()),
            Stage(steps=(charging(order),), is_final=True),
            Stage(steps=tuple(shipping(name, *line) for line in wanted.items())),
            Stage(steps=(completing(name),)),
        )
    )


def quantities(lines: list[Line]) -> dict[str, int]:
    """Return the pieces of each product: two lines of one product are one reservation."""
    total: dict[str, int] = {}
    for line in lines:
        total[line.product] = total.get(line.product, 0) + line.quantity
    return total


def submitting(name: str, order: PlaceOrder) -> Step:
    """The order document begins; without its goods it is cancelled."""
    body = {"customer": order.customer, "amount": order.amount}
    return Step(
        name="submit",
        do=Command(session=f"order:{name}", type="order.submit", body=body),
        undo=Command(session=f"order:{name}", type="order.cancel"),
    )


def reserving(name: str, product: str, quantity: int) -> Step:
    """A line's goods are set aside, or put back."""
    session, body = f"stock:{product}", {"order": name, "quantity": quantity}
    return Step(
        name=f"reserve.{product}",
        do=Command(session=session, type="stock.reserve", body=body),
        undo=Command(session=session, type="stock.release", body=body),
    )


def charging(order: PlaceOrder) -> Step:
    """The customer pays."""
    body = {"amount": order.amount}
    charge = Command(session=f"account:{order.customer}", type="account.charge", body=body)
    return Step(name="charge", do=charge)


def shipping(name: str, product: str, quantity: int) -> Step:
    """A line's goods leave."""
    body = {"order": name, "quantity": quantity}
    ship = Command(session=f"stock:{product}", type="stock.ship", body=body)
    return Step(name=f"ship.{product}", do=ship)


def completing(name: str) -> Step:
    """The order document is closed."""
    return Step(name="complete", do=Command(session=f"order:{name}", type="order.complete"))


@handlers.register("order.submit", state=Order, body=Submit, sessions=ORDERS)
def submit(order: Order, body: Submit, _: Context) -> Handled[Order]:
    """Begin an order document."""
    if order.status != "new":
        return refused(order, f"the order is {order.status}")
    return Handled(Order(status="submitted", customer=body.customer, amount=body.amount))


@handlers.register("order.cancel", state=Order, body=Nothing, sessions=ORDERS)
def cancel(order: Order, _: Nothing, __: Context) -> Handled[Order]:
    """Cancel an order that is under way."""
    return moved(order, "submitted", "cancelled")


@handlers.register("order.complete", state=Order, body=Nothing, sessions=ORDERS)
def complete_order(order: Order, _: Nothing, __: Context) -> Handled[Order]:
    """Close an order that is under way."""
    return moved(order, "submitted", "completed")


@handlers.register("stock.receive", state=Stock, body=ReceivedStock, sessions=STOCK)
def receive(stock: Stock, body: ReceivedStock, _: Context) -> Stock:
    """Take goods in."""
    return stock.model_copy(
        update={"received": stock.received + body.quantity, "left": stock.left + body.quantity}
    )


@handlers.register("stock.reserve", state=Stock, body=Reservation, sessions=STOCK)
def reserve(stock: Stock, body: Reservation, _: Context) -> Handled[Stock]:
    """Set goods aside for an order, if there are enough."""
    if body.quantity > stock.left:
        return refused(stock, f"{stock.left} left, {body.quantity} wanted")
    reserved = {**stock.reserved, body.order: body.quantity}
    left = stock.left - body.quantity
    return Handled(stock.model_copy(update={"left": left, "reserved": reserved}))


@handlers.register("stock.release", state=Stock, body=Reservation, sessions=STOCK)
def release(stock: Stock, body: Reservation, _: Context) -> Handled[Stock]:
    """Put an order's goods back."""
    if body.order not in stock.reserved:
        return refused(stock, "nothing is reserved")
    left = stock.left + stock.reserved[body.order]
    return Handled(without(stock, body.order).model_copy(update={"left": left}))


@handlers.register("stock.ship", state=Stock, body=Reservation, sessions=STOCK)
def ship(stock: Stock, body: Reservation, _: Context) -> Handled[Stock]:
    """Send an order's goods off."""
    if body.order not in stock.reserved:
        return refused(stock, "nothing is reserved")
    shipped = stock.shipped + stock.reserved[body.order]
    return Handled(without(stock, body.order).model_copy(update={"shipped": shipped}))


@handlers.register("account.deposit", state=Account, body=Amount, sessions=ACCOUNTS)
def deposit(account: Account, body: Amount, _: Context) -> Account:
    """Add money."""
    return account.model_copy(update={"balance": account.balance + body.amount})


@handlers.register("account.charge", state=Account, body=Amount, sessions=ACCOUNTS)
def charge(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Pay for an order, if there is enough."""
    if body.amount > account.balance:
        return refused(account, f"{account.balance} left, {body.amount} wanted")
    left, paid = account.balance - body.amount, account.paid + body.amount
    return Handled(Account(balance=left, paid=paid))


def moved(
    order: Order,
    before: Literal["submitted"],
    after: Literal["cancelled", "completed"],
) -> Handled[Order]:
    """The order in its next status, if it is in the one before."""
    if order.status != before:
        return refused(order, f"the order is {order.status}")
    return Handled(order.model_copy(update={"status": after}))


def without(stock: Stock, order: str) -> Stock:
    """The stock without an order's reservation."""
    kept = {name: quantity for name, quantity in stock.reserved.items() if name != order}
    return stock.model_copy(update={"reserved": kept})


def refused[S: BaseModel](state: S, reason: str) -> Handled[S]:
    """Change nothing; the saga turns back."""
    return Handled(state, answer=Refusal(refused=reason))

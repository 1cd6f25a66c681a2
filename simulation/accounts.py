"""A small business to simulate: accounts that book amounts, in every kind of handler."""

import asyncio
from dataclasses import dataclass, field

from pydantic import BaseModel

from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault, Output
from shared.domain.message import Message

# Longer than a lease now and then, so that claims are renewed.
EFFECT_SECONDS = 9.0
# What is forwarded is told from what was sent by its size.
FORWARDED = 10_000
# Over what a queue takes, and over what an entry keeps when limits are small.
BOAST_CHARACTERS = 2_000
LETTER_CHARACTERS = 400


class Amount(BaseModel):
    """What an account is told; `to` is the account that an amount is forwarded to."""

    amount: int
    to: str | None = None
    is_wrong: bool = False


class Account(BaseModel):
    """What an account remembers: every amount, in the order in which it was applied."""

    amounts: list[int] = []


class Receipt(BaseModel):
    """What an account answers."""

    total: int
    receipt: str
    lucky_number: int
    text: str = ""


@dataclass
class Outside:
    """A system that is called: which keys came with which amounts, and who was turned away."""

    calls: list[tuple[str, int]] = field(default_factory=list)
    turned_away: set[str] = field(default_factory=set)

    async def pay(self, key: str, amount: int, *, is_shy: bool) -> None:
        """Take a payment; a shy one fails at first."""
        if is_shy and key not in self.turned_away:
            self.turned_away.add(key)
            raise ConnectionError("the outside is busy")
        self.calls.append((key, amount))


def business(outside: Outside) -> Handlers:
    """The handlers of the accounts."""
    handlers = Handlers()
    add_books(handlers)
    add_letters(handlers)
    add_failures(handlers)
    add_effects(handlers, outside)
    return handlers


def booked(account: Account, body: Amount) -> Account:
    """The account with one more amount."""
    return Account(amounts=[*account.amounts, body.amount])


def receipt(account: Account, context: Context, text: str = "") -> Output:
    """A receipt for everything booked so far, which no second run may give otherwise."""
    total = sum(account.amounts)
    lucky = context.random.randrange(1_000_000)
    body = Receipt(total=total, receipt=context.new_id(), lucky_number=lucky, text=text)
    return Output("account.receipt", body)


def add_books(handlers: Handlers) -> None:
    """Handlers that depend on nothing but state and message."""

    @handlers.register("account.add", state=Account, body=Amount)
    def add(account: Account, body: Amount, _: Context) -> Account:
        """Book an amount in silence."""
        return booked(account, body)

    @handlers.register("account.bill", state=Account, body=Amount)
    def bill(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Book an amount and send a receipt, which is kept with the entry."""
        after = booked(account, body)
        return Handled(after, (receipt(after, context),))

    @handlers.register("account.state", state=Account, body=Amount, kind=Kind.DETERMINISTIC)
    def state(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Book an amount and send two receipts, which are made again when they are needed."""
        after = booked(account, body)
        price = context.captured("price", lambda: len(account.amounts))
        return Handled(after, (receipt(after, context, f"{price}"), receipt(after, context)))

    @handlers.register("account.forward", state=Account, body=Amount)
    def forward(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Book an amount here and in another account."""
        after = booked(account, body)
        there = Output("account.bill", Amount(amount=body.amount + FORWARDED), body.to, to="in")
        return Handled(after, (there, receipt(after, context)))


def add_letters(handlers: Handlers) -> None:
    """Handlers with outputs that are too large for an entry, or for a queue."""

    @handlers.register("account.letter", state=Account, body=Amount)
    def letter(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Book an amount and send more than an entry keeps where limits are small."""
        after = booked(account, body)
        text = "l" * LETTER_CHARACTERS
        return Handled(after, tuple(receipt(after, context, text) for _ in range(3)))

    @handlers.register("account.boast", state=Account, body=Amount)
    def boast(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Book an amount and send what no queue takes between two receipts."""
        after = booked(account, body)
        texts = ("", "b" * BOAST_CHARACTERS, "")
        return Handled(after, tuple(receipt(after, context, text) for text in texts))


def add_failures(handlers: Handlers) -> None:
    """Handlers that fail."""

    @handlers.register("account.hint", state=Account, body=Amount, on_fault=OnFault.SKIP)
    def hint(_: Account, __: Amount, ___: Context) -> Account:
        """Fail, but nobody minds."""
        raise ArithmeticError("hints are not taken")

    @handlers.register("account.burn", state=Account, body=Amount)
    def burn(account: Account, body: Amount, _: Context) -> Account:
        """Fail until a person corrects the message."""
        if body.is_wrong:
            raise ArithmeticError("this is wrong")
        return booked(account, body)


def add_effects(handlers: Handlers, outside: Outside) -> None:
    """Handlers that call the outside."""

    @handlers.register("account.wire", state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def wire(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Book an amount after a long call to the outside."""
        key = context.new_id()
        await asyncio.sleep(context.random.random() ** 2 * EFFECT_SECONDS)
        await outside.pay(key, body.amount, is_shy=context.random.random() < 0.2)
        after = booked(account, body)
        return Handled(after, (receipt(after, context),))

    @handlers.register("account.tell", body=Amount, kind=Kind.IDEMPOTENT)
    async def tell(state: BaseModel, body: Amount, context: Context) -> Handled[BaseModel]:
        """Tell somebody; telling twice does no harm."""
        await outside.pay(context.new_id(), body.amount, is_shy=False)
        return Handled(state, (Output("account.told", body, ordered=False),))


def corrected(message: Message) -> bytes | None:
    """What a person makes of a message that failed: only a burning is worth it."""
    if message.type != "account.burn":
        return None
    body = Amount.model_validate_json(message.body)
    return body.model_copy(update={"is_wrong": False}).model_dump_json().encode()

"""A small business to simulate: accounts that book amounts, in every kind of handler."""

import asyncio

from pydantic import BaseModel

from shared.domain.handling import Context, Handled, Handlers, Kind, OnFault, Output

handlers = Handlers()

# Longer than a lease now and then, so that claims are renewed.
EFFECT_SECONDS = 12.0


class Amount(BaseModel):
    """What an account is told."""

    amount: int


class Account(BaseModel):
    """What an account remembers: every amount, in the order in which it was applied."""

    amounts: list[int] = []


class Receipt(BaseModel):
    """What an account answers."""

    total: int
    receipt: str
    lucky_number: int


def booked(account: Account, body: Amount) -> Account:
    """The account with one more amount."""
    return Account(amounts=[*account.amounts, body.amount])


def receipt(account: Account, context: Context) -> Output:
    """A receipt for everything booked so far, which no second run may give otherwise."""
    total = sum(account.amounts)
    lucky = context.random.randrange(1_000_000)
    body = Receipt(total=total, receipt=context.new_id(), lucky_number=lucky)
    return Output("account.receipt", body)


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
    return Handled(after, (receipt(after, context), receipt(after, context)))


@handlers.register("account.wire", state=Account, body=Amount, kind=Kind.EFFECTFUL)
async def wire(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount after a long call to the outside."""
    await asyncio.sleep(context.random.random() * EFFECT_SECONDS)
    after = booked(account, body)
    return Handled(after, (receipt(after, context),))


@handlers.register("account.hint", state=Account, body=Amount, on_fault=OnFault.SKIP)
def hint(_: Account, __: Amount, ___: Context) -> Account:
    """Fail, but nobody minds."""
    raise ArithmeticError("hints are not taken")

"""What is played in a world, by name: the accounts, the orders, or now one and now the other."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shared.domain.handling import Handlers
from simulation import accounts as banking
from simulation import orders as ordering
from simulation.accounts import account_violations
from simulation.clients import Correct, Errand, uncorrected
from simulation.faults import Chance
from simulation.order_workload import shopping_of
from simulation.orders import order_violations
from simulation.recorder import Violation
from simulation.variant import Variant
from simulation.workload import Workload, workload_of
from simulation.world import World

# Of so many seeds one plays orders, where any play will do.
ORDERS_EVERY = 3

type Judge = Callable[[World], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Play:
    """Handlers, what they are sent, what is wanted of their sagas, and what must hold in the end.

    Handlers with kinds of sagas get a task hub in each region.
    """

    name: str
    handlers: Handlers
    load: Workload
    judge: Judge
    correct: Correct = uncorrected
    errands: tuple[Errand, ...] = ()


type Prepare = Callable[[Chance, Variant], Play]


def accounts(chance: Chance, variant: Variant) -> Play:
    """The accounts, and messages of every kind for them."""
    outside = banking.Outside()
    load = workload_of(chance.stream("workload"), variant)
    return Play(
        "accounts",
        banking.business(outside),
        load,
        lambda world: account_violations(world, load, outside),
        banking.corrected,
    )


def orders(chance: Chance, _: Variant) -> Play:
    """Orders and other sagas."""
    shopping = shopping_of(chance.stream("shopping"))
    return Play(
        "orders",
        ordering.business(),
        shopping.load,
        order_violations,
        ordering.corrected,
        shopping.errands,
    )


def either(chance: Chance, variant: Variant) -> Play:
    """Orders for some seeds, accounts for most."""
    return (accounts if chance.seed % ORDERS_EVERY else orders)(chance, variant)


PLAYS: dict[str, Prepare] = {"accounts": accounts, "orders": orders, "any": either}

"""Two hundred orders that cannot all be had: what is ordered, who approves it, and when."""

from dataclasses import dataclass
from random import Random
from typing import Any

PRODUCTS = [f"product-{n:02d}" for n in range(20)]
CUSTOMERS = [f"customer-{n:02d}" for n in range(25)]
IN_STOCK = 25
MONEY = 4_000
APPROVAL_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order, and what a person says to it, `says_after` seconds later; "" is nothing."""

    key: str
    body: dict[str, Any]
    says: str = ""
    says_after: float = 0.0


def placed_orders(count: int, seed: int) -> list[PlacedOrder]:
    """Make orders; the same seed makes the same ones."""
    chance = Random(seed)  # noqa: S311 - must repeat, not surprise
    return [placed_order(f"order-{n:03d}", chance) for n in range(count)]


def placed_order(key: str, chance: Random) -> PlacedOrder:
    """Make one order: half need approval; some are rejected, cancelled or forgotten."""
    wanted = {
        product: chance.randint(1, 5) for product in chance.sample(PRODUCTS, chance.randint(1, 3))
    }
    body: dict[str, Any] = {
        "customer": chance.choice(CUSTOMERS),
        "amount": 100 * sum(wanted.values()),
        "lines": [{"product": p, "quantity": q} for p, q in wanted.items()],
    }
    if chance.random() < 0.5:
        return PlacedOrder(key, body)
    says = chance.choices(["approved", "rejected", "cancel", ""], weights=[6, 2, 1, 1])[0]
    body["approval_seconds"] = APPROVAL_SECONDS
    return PlacedOrder(key, body, says, chance.uniform(1.0, 8.0))

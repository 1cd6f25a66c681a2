"""Orders that cannot all be had, and a client that places and decides them over HTTP.

The client goes to the other region when one does not respond.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from random import Random
from typing import Any
from urllib.parse import quote

from cli.cloud import KEY
from local.testing.control import request_json
from local.testing.patience import wait_until
from proof.testbed.command import RunFailed

PRODUCTS = [f"product-{n:02d}" for n in range(20)]
CUSTOMERS = [f"customer-{n:02d}" for n in range(25)]
IN_STOCK = 25
MONEY = 4_000
APPROVAL_SECONDS = 12.0
RESPONSE_SECONDS_MAX = 10.0
TRIES = 60
PAUSE_SECONDS = 0.5
STOCK_UP_SECONDS_MAX = 240.0


class NoResponse(RunFailed):
    """No region responded, or nothing came of it, for as long as anybody would wait."""


@dataclass(frozen=True, slots=True)
class PlacedOrder:
    """An order, and what a person decides `decided_after` seconds later; "" is nothing."""

    key: str
    body: dict[str, Any]
    decision: str = ""
    decided_after: float = 0.0


def make_orders(count: int, seed: int) -> list[PlacedOrder]:
    """Make orders; the same seed makes the same ones."""
    chance = Random(seed)  # noqa: S311 - must repeat, not surprise
    return [make_order(f"order-{n:03d}", chance) for n in range(count)]


def make_order(key: str, chance: Random) -> PlacedOrder:
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
    decision = chance.choices(["approved", "rejected", "cancel", ""], weights=[6, 2, 1, 1])[0]
    body["approval_seconds"] = APPROVAL_SECONDS
    return PlacedOrder(key, body, decision, chance.uniform(1.0, 8.0))


@dataclass(frozen=True, slots=True)
class OrderClient:
    """Asks one region, then the other, until there is a response; `urls` by region."""

    urls: Mapping[str, str]

    def stock_up(self) -> None:
        for product in PRODUCTS:
            self.publish(f"stock:{product}", "stock.receive", {"quantity": IN_STOCK})
        for customer in CUSTOMERS:
            self.publish(f"account:{customer}", "account.deposit", {"amount": MONEY})
        # What was sent last to each kind of session was processed last.
        last = (f"account:{CUSTOMERS[-1]}", f"stock:{PRODUCTS[-1]}")
        wait_until(
            lambda: all(self.has_journal(session) for session in last),
            seconds=STOCK_UP_SECONDS_MAX,
            what="what was sent first was not processed",
            error=NoResponse,
            poll_seconds=PAUSE_SECONDS,
        )

    def publish(self, session: str, kind: str, body: dict[str, Any]) -> None:
        path = f"sessions/{quote(session)}/messages?type={kind}"
        self.ask(next(iter(self.urls)), path, body, name=f"{kind} {session}")

    def has_journal(self, session: str) -> bool:
        return self.ask(next(iter(self.urls)), f"sessions/{quote(session)}")[0] == 200

    def place(self, order: PlacedOrder, region: str) -> None:
        self.ask(region, f"sagas/{order.key}?type=order.place", order.body)

    def decide(self, order: PlacedOrder, region: str) -> None:
        path = "cancel" if order.decision == "cancel" else f"events/{order.decision}"
        self.ask(region, f"sagas/{order.key}/{path}", {})

    def count_open_sagas(self, region: str) -> int:
        states = ("running", "compensating")
        found = [self.ask(region, f"sagas?state={state}")[1]["sagas"] for state in states]
        return sum(map(len, found))

    def ask(self, region: str, path: str, body: Any = None, name: str = "-") -> tuple[int, Any]:
        method = "GET" if body is None else "POST"
        headers = {"x-functions-key": KEY, "Idempotency-Key": name}
        others = [other for other in self.urls if other != region]
        for tried in range(TRIES):
            for asked in (region, *others):
                try:
                    url, limit = f"{self.urls[asked]}/api/{path}", RESPONSE_SECONDS_MAX
                    status, document = request_json(method, url, body, headers, timeout=limit)
                except (OSError, HTTPException):
                    continue
                if status < 500:
                    return status, document
            time.sleep(PAUSE_SECONDS * min(tried, 4))
        raise NoResponse(f"no region responded to {path}")

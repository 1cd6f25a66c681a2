"""A client of the app's HTTP functions that goes to the other region when one does not answer."""

import json
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from demo.sagas.orders import CUSTOMERS, IN_STOCK, MONEY, PRODUCTS, PlacedOrder
from demo.sagas.regions import REGIONS, Regions

KEY = "lockstep-local"
ANSWER_SECONDS = 10.0
TRIES = 60
PAUSE_SECONDS = 0.5


class Unanswered(Exception):
    """No region answered for as long as anybody would try."""


class Shop:
    """Asks one region, then the other, until there is an answer."""

    def __init__(self, both: Regions) -> None:
        self.both = both

    def stock_up(self) -> None:
        """Give every product its goods and every customer money."""
        for product in PRODUCTS:
            self.publish(f"stock:{product}", "stock.receive", {"quantity": IN_STOCK})
        for customer in CUSTOMERS:
            self.publish(f"account:{customer}", "account.deposit", {"amount": MONEY})
        for session in (f"account:{CUSTOMERS[-1]}", f"stock:{PRODUCTS[-1]}"):
            self.until(partial(self.is_known, session))

    def publish(self, session: str, kind: str, body: dict[str, Any]) -> None:
        """Send a message through the app's own producer."""
        path = f"sessions/{quote(session)}/messages?type={kind}"
        self.ask("east", path, body, name=f"{kind} {session}")

    def is_known(self, session: str) -> bool:
        """Whether a session has a journal."""
        return self.ask("east", f"sessions/{quote(session)}")[0] == 200

    def place(self, order: PlacedOrder, region: str) -> tuple[int, Any]:
        """Start an order's saga."""
        return self.ask(region, f"sagas/{order.key}?type=order.place", order.body)

    def say(self, order: PlacedOrder, region: str) -> tuple[int, Any]:
        """Tell an order's saga what a person decided."""
        path = "cancel" if order.says == "cancel" else f"events/{order.says}"
        return self.ask(region, f"sagas/{order.key}/{path}", {})

    def open_sagas(self, region: str) -> int:
        """How many sagas a region's task hub has that are not over."""
        states = ("running", "compensating")
        found = [self.ask(region, f"sagas?state={state}")[1]["sagas"] for state in states]
        return sum(map(len, found))

    def ask(self, region: str, path: str, body: Any = None, name: str = "-") -> tuple[int, Any]:
        """Status and document of an answer, from whichever region gives one."""
        others = [other for other in REGIONS if other != region]
        for tried in range(TRIES):
            for asked in (region, *others):
                try:
                    status, document = self.ask_one(asked, path, body, name)
                except (OSError, HTTPException):
                    continue
                if status < 500:
                    return status, document
            time.sleep(PAUSE_SECONDS * min(tried, 4))
        raise Unanswered(path)

    def ask_one(self, region: str, path: str, body: Any, name: str) -> tuple[int, Any]:
        """Ask one region once."""
        place = urlsplit(self.both.urls[region]).netloc
        connection = HTTPConnection(place, timeout=ANSWER_SECONDS)
        headers = {"x-functions-key": KEY, "Idempotency-Key": name}
        method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
        try:
            connection.request(method, f"/api/{path}", text, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(content) if content else None

    def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        """Wait for a condition; raises Unanswered when it takes too long."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Unanswered("it took too long")
            time.sleep(PAUSE_SECONDS)

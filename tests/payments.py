"""A payment server over HTTP, as handlers under test call it: it writes each effect into a log.

A line is on the disk before anybody is answered. The first part of a request's path says what the
server knows: `keyed` does each key once and gives its receipt again, `asked` does whatever it is
told and can be asked by key, `blind` does whatever it is told and knows nothing.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

from werkzeug import Request, Response

from proof.testbed.serving import serving

# Whoever waits at a point is killed by the test; a test that does not come so far ends by itself.
HELD_SECONDS_MAX = 300.0

# A session, a step of it, and whether its request is held before its effect or after it.
type Point = tuple[str, str, str]
type LogLine = dict[str, Any]
# What it does with a request in place of its answer: before the effect, or after it.
type InjectedFault = Callable[[Request], Response]


@dataclass
class PaymentServer:
    """A payment server with its log.

    A request that comes to one of the `holds` is kept there, without an answer, until `let_go`. One
    that is held before its effect has none then. `injected` do with the requests of a point what
    they like.
    """

    file: Path
    url: str = ""
    holds: set[Point] = field(default_factory=set)
    injected: dict[Point, InjectedFault] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    is_over: Event = field(default_factory=Event)

    def answer(self, request: Request) -> Response:
        """Do what is asked, once it is written down."""
        _, way, step = request.path.split("/")
        key = request.args.get("key") or request.headers.get("Idempotency-Key", "")
        session = request.headers.get("Session", "")
        line = {"step": step, "key": key, "session": session, "who": request.headers.get("Who")}
        if request.method == "GET":
            return self.tell(line, way, request)
        if early := self.come_to((session, step, "before"), request):
            return early
        with self.lock:
            known = self.find_charge(step, key) if way == "keyed" else None
            # Werkzeug reads the whole body here; a request that was cut off has no effect.
            body = request.get_json()
            receipt = known["receipt"] if known else f"{step} {len(self.lines()) + 1}"
            event = "given again" if known else "charge"
            self.write(event, {**line, "way": way, "body": body, "receipt": receipt})
        early = self.come_to((session, step, "after"), request)
        return early or answer_json(200, {"receipt": receipt})

    def tell(self, line: LogLine, way: str, request: Request) -> Response:
        """Answer a question about a key, or take note of what a handler says of itself."""
        if way == "said":
            with self.lock:
                self.write(line["step"], line)
            early = self.come_to((line["session"], line["step"], "after"), request)
            return early or answer_json(200, {})
        with self.lock:
            found = self.find_charge(line["step"], line["key"]) if way == "asked" else None
            self.write("look-up", line)
        return answer_json(200, found) if found else answer_json(404, {})

    def come_to(self, point: Point, request: Request) -> Response | None:
        """Hold a request that is to be held here; what it is answered in place of its answer."""
        if point in self.injected:
            return self.injected[point](request)
        with self.lock:
            if point not in self.holds:
                return None
            self.holds.remove(point)
        self.is_over.wait(HELD_SECONDS_MAX)
        return answer_json(503, {})

    def hold(self, points: set[Point]) -> None:
        """Hold the next request that comes to each of these points."""
        self.is_over.clear()
        self.holds |= points

    def let_go(self) -> None:
        """Answer whatever is held, without another effect."""
        self.is_over.set()

    def write(self, event: str, line: LogLine) -> None:
        """Have a line on the disk."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **line, "at": time.time()}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self, session: str | None = None) -> list[LogLine]:
        """The log, or what is in it of one session."""
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [one for one in found if session in (None, one["session"])]

    def find_charge(self, step: str, key: str) -> LogLine | None:
        """What was done of a step under a key, if anything."""
        done = [one for one in self.lines() if one["event"] == "charge"]
        return next((one for one in done if (one["step"], one["key"]) == (step, key)), None)


def answer_json(status: int, document: object) -> Response:
    return Response(json.dumps(document), status, content_type="application/json")


@contextmanager
def payment_server(file: Path) -> Iterator[PaymentServer]:
    """Run a server for the length of a `with` block."""
    server = PaymentServer(file)
    with serving(server.answer) as server.url:
        try:
            yield server
        finally:
            server.let_go()

"""Sessions that post by HTTP while something is lost: what was accepted, and how long answers took.

Each posts one message after another, to the next region where one is gone, and again under the
same key until it is accepted.
"""

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from threading import Event

from cli.cloud import KEY
from local.testing.control import request_json
from proof.demo.checker import CheckResult
from proof.testbed.command import RunFailed
from proof.testbed.faults import run_in_background
from proof.testbed.flights import TYPE, FlightMessage, identify_body

# No aircraft is called so.
PREFIX = "post-"
SESSIONS = 50
# One while the journal takes no writes, and one after. They come to an end, or the queues would
# never be empty after a feed that ended early.
POSTS_OF_SESSION_MAX = 2
PAUSE_SECONDS = 5.0
AGAIN_SECONDS = 0.5
BODY = json.dumps(
    {
        "status": "departed",
        "flight": "UA1545",
        "origin": "EWR",
        "destination": "IAH",
        "at": "2013-01-01T05:17:00",
    }
)


@dataclass(slots=True)
class Posts:
    """The posts of one run; `urls` are its hosts, the first of which is asked first.

    `seconds` are how long each request took until it was answered or its connection ended, and
    `refused` counts the answers upon which a message was posted again.
    """

    urls: Sequence[str]
    prefix: str = field(default_factory=lambda: f"{PREFIX}{time.time():.0f}-")
    accepted: list[FlightMessage] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    stopping: Event = field(default_factory=Event)
    sessions: dict[str, Future[None]] = field(default_factory=dict)

    def start(self) -> None:
        for place in range(SESSIONS):
            session = f"{self.prefix}{place:02d}"
            work = partial(self.post_all, session, PAUSE_SECONDS * place / SESSIONS)
            self.sessions[session] = run_in_background(work)

    def find_ended(self) -> frozenset[str]:
        """Return the sessions that post no more; raises RunFailed."""
        ended = frozenset(name for name, posting in self.sessions.items() if posting.done())
        for name in ended:
            self.sessions[name].result()
        return ended

    def are_done(self) -> bool:
        return len(self.find_ended()) == len(self.sessions)

    def post_all(self, session: str, after_seconds: float) -> None:
        self.stopping.wait(after_seconds)
        for number in range(POSTS_OF_SESSION_MAX):
            if self.stopping.is_set():
                return
            self.post(session, f"{session}-{number}")
            self.stopping.wait(PAUSE_SECONDS)

    def post(self, session: str, key: str) -> None:
        """Post a message until it is accepted; raises RunFailed when it never will be."""
        path = f"/api/sessions/{session}/messages?type={TYPE}"
        headers = {"x-functions-key": KEY, "Idempotency-Key": key}
        while True:
            for url in self.urls:
                began = time.monotonic()
                try:
                    status, answer = request_json("POST", url + path, BODY, headers)
                except (OSError, HTTPException):
                    continue
                finally:
                    self.seconds.append(time.monotonic() - began)
                if status == 202:
                    made = FlightMessage(
                        session, answer["sequence"], answer["id"], identify_body(BODY)
                    )
                    self.accepted.append(made)
                    return
                if status < 500 and status != 429:
                    raise RunFailed(f"{key} was not accepted: {status} {answer}")
                self.refused += 1
            time.sleep(AGAIN_SECONDS)


@dataclass(frozen=True, slots=True)
class PostResult:
    """The messages that were posted, checked like those of the feed, in `commits` entries."""

    check: CheckResult
    commits: int
    refused: int
    slowest_seconds: float

    def __str__(self) -> str:
        accepted = f"{self.check.sent} accepted meanwhile in {SESSIONS} sessions"
        longest = f"no request took longer than {self.slowest_seconds:.1f} s"
        return f"{accepted}, {self.refused} answers to post again; {longest}"

"""HTTP requests to a Functions host, and its answers, whatever their status."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message

ANSWER_SECONDS_MAX = 60.0
# What functions that need a key take, unless the settings of the host name another.
KEY = {"x-functions-key": "lockstep-local"}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, whatever its status."""

    status: int
    headers: Message
    body: bytes


def request(
    url: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """Send one HTTP request and return the answer; raises OSError where there is none."""
    asked = urllib.request.Request(url, method=method, headers=dict(headers or {}), data=body)  # noqa: S310 - the caller's own host
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())

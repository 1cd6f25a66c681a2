"""The token that says where the next page of a query begins.

A page resumes behind the last row taken, whatever was written in between; only without repeats, by
SELECT DISTINCT, does it resume by count.
"""

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

from local.cosmos.answers import Refusal, compact


@dataclass(frozen=True, slots=True)
class Continuation:
    """`consumed` rows are passed, `shown` of them given out; `after` is the last one's position."""

    consumed: int = 0
    shown: int = 0
    after: list[Any] | None = None

    def token(self, query: str) -> str:
        """As an opaque text that only fits this query."""
        fields = compact([checksum(query), self.consumed, self.shown, self.after])
        return base64.urlsafe_b64encode(fields.encode()).decode()


def parse_continuation(token: str | None, query: str) -> Continuation:
    """Read a token; a 400 Refusal when it is damaged or of another query."""
    if not token:
        return Continuation()
    try:
        check, consumed, shown, after = json.loads(base64.urlsafe_b64decode(token))
        continuation = Continuation(int(consumed), int(shown), after)
    except (ValueError, TypeError) as error:
        raise Refusal(400, "the continuation token is damaged") from error
    if check != checksum(query):
        raise Refusal(400, "the continuation token belongs to another query")
    return continuation


def checksum(query: str) -> int:
    """A short mark of a query's text."""
    return zlib.crc32(query.encode())

"""The token that says where the next page of a query begins.

In an order that SQL delivers, a page resumes behind the last row shown, whatever was written in
between. In an order that is sorted afterwards it resumes by count, so rows written in between may
shift it.
"""

import base64
import json
import zlib
from dataclasses import dataclass

from local.cosmos.answers import Refusal, compact


@dataclass(frozen=True, slots=True)
class Continuation:
    """`consumed` rows are passed, `shown` of them given out; `after` is the last one's key."""

    consumed: int = 0
    shown: int = 0
    after: tuple[str, str] | None = None

    def token(self, query: str) -> str:
        """As an opaque text that only fits this query."""
        after = list(self.after) if self.after else None
        fields = compact([checksum(query), self.consumed, self.shown, after])
        return base64.urlsafe_b64encode(fields.encode()).decode()


def parse_continuation(token: str | None, query: str) -> Continuation:
    """Read a token; a 400 Refusal when it is damaged or of another query."""
    if not token:
        return Continuation()
    try:
        check, consumed, shown, after = json.loads(base64.urlsafe_b64decode(token))
        continuation = Continuation(int(consumed), int(shown), tuple(after) if after else None)
    except (ValueError, TypeError) as error:
        raise Refusal(400, "the continuation token is damaged") from error
    if check != checksum(query):
        raise Refusal(400, "the continuation token belongs to another query")
    return continuation


def checksum(query: str) -> int:
    """A short mark of a query's text."""
    return zlib.crc32(query.encode())

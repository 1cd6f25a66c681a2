"""What the account answers: a status with a body, or a refusal that says why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local.cosmos.items import charges

CODES = {
    304: "NotModified",
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    410: "Gone",
    412: "PreconditionFailed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    449: "RetryWith",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One response; `charge` is in request units."""

    status: int
    body: bytes = b""
    charge: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, more: Mapping[str, str]) -> "Answer":
        """The same with more headers; its own are stronger."""
        return Answer(self.status, self.body, self.charge, {**more, **self.headers})


class Refusal(Exception):
    """The service says no: an HTTP status, the service's sub-status, and a sentence.

    `additional` is what a client may need to go on.
    """

    def __init__(
        self, status: int, message: str, *, substatus: int | None = None, additional: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.substatus = substatus
        self.additional = additional

    def answer(self) -> Answer:
        """The refusal as a response."""
        code = CODES.get(self.status, "Error")
        headers = {} if self.substatus is None else {"x-ms-substatus": str(self.substatus)}
        body = {"code": code, "message": self.message}
        if self.additional:
            body["additionalErrorInfo"] = self.additional
        return Answer(self.status, compact(body).encode(), charges.REFUSAL, headers)


def unsupported(what: str) -> Refusal:
    """The refusal of something the real service knows and this one does not."""
    return Refusal(400, f"the local Cosmos DB does not offer {what}")


def compact(document: Any) -> str:
    """JSON without blanks, the way items are stored and sent."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def item_list(rid: str, texts: list[str]) -> bytes:
    """The body of a page of items, or of query results, already JSON each."""
    listed = ",".join(texts)
    return f'{{"_rid":"{rid}","Documents":[{listed}],"_count":{len(texts)}}}'.encode()

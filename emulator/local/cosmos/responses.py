"""The answers of the account: a response with a body, or a refusal that says why."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from local.cosmos import charges

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


ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)  # made once, for speed


@dataclass(frozen=True, slots=True)
class CosmosResponse:
    """One response; `charge` is in request units."""

    status: int
    body: bytes = b""
    charge: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def add_headers(self, more: Mapping[str, str]) -> "CosmosResponse":
        """The same response with more headers; those it has already are kept."""
        return replace(self, headers={**more, **self.headers})


class RequestRefused(Exception):
    """The service refuses a request: an HTTP status, the service's substatus, and a sentence.

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

    def to_response(self) -> CosmosResponse:
        headers = {} if self.substatus is None else {"x-ms-substatus": str(self.substatus)}
        body = {"code": CODES.get(self.status, "Error"), "message": self.message}
        if self.additional:
            body["additionalErrorInfo"] = self.additional
        # The text may quote half of a surrogate pair, which JSON can only hold as an escape.
        text = write_json(body).encode(errors="backslashreplace")
        return CosmosResponse(self.status, text, charges.REFUSAL, headers)


class BadRequest(RequestRefused):
    def __init__(self, message: str, *, substatus: int | None = None, additional: str = "") -> None:
        super().__init__(400, message, substatus=substatus, additional=additional)


class NotOffered(BadRequest):
    """The real service knows `what`, but the local one does not."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the local Cosmos DB does not offer {what}")


def write_json(document: Any) -> str:
    """JSON without blanks, the way items are stored and sent."""
    return ENCODER.encode(document)


def write_item_list(rid: str, texts: list[str]) -> bytes:
    """The body of a page of items, or of query results, each of which is JSON already."""
    items = ",".join(texts)
    return f'{{"_rid":"{rid}","Documents":[{items}],"_count":{len(texts)}}}'.encode()

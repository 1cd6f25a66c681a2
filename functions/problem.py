"""Answers of the HTTP triggers: JSON, and problem details (RFC 9457) for everything that failed."""

import json
from typing import Any

import azure.functions as func

from shared.domain.errors import (
    CallerError,
    ContentConflict,
    LockstepError,
    NotHalted,
    ProducerDisconnected,
    Unavailable,
)

RETRY_AFTER_SECONDS = 1


def answer(document: Any, status: int = 200) -> func.HttpResponse:
    """A JSON answer."""
    return func.HttpResponse(json.dumps(document), status_code=status, mimetype="application/json")


def problem(error: LockstepError) -> func.HttpResponse:
    """What went wrong, as problem details; the type is the name of the error."""
    status = status_of(error)
    details = {"type": type(error).__name__, "status": status, "detail": str(error)}
    return func.HttpResponse(
        json.dumps(details),
        status_code=status,
        mimetype="application/problem+json",
        headers=retry_headers(error),
    )


def status_of(error: LockstepError) -> int:
    """The HTTP status of an error."""
    match error:
        case ContentConflict() | NotHalted() | ProducerDisconnected():
            return 409
        case CallerError():
            return 400
        case _:
            return 503


def retry_headers(error: LockstepError) -> dict[str, str]:
    """When to come back, for an error that time may mend."""
    if isinstance(error, CallerError):
        return {}
    wanted = error.retry_after_seconds if isinstance(error, Unavailable) else None
    return {"Retry-After": str(round(wanted or RETRY_AFTER_SECONDS))}

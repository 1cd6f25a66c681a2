"""Responses of the HTTP triggers: JSON, and problem details (RFC 9457) for what failed."""

import json
from collections.abc import Mapping
from math import ceil
from typing import Any

import azure.functions as func

from shared.domain.errors import (
    AlreadyPublished,
    CallerError,
    ContentConflict,
    LockstepError,
    NotAllowed,
    NotAuthenticated,
    NotBlocked,
    NotHalted,
    NotMissing,
    NotOpen,
    NotRepeatable,
    NumbersExhausted,
    ProducerDisconnected,
    Throttled,
    TooLarge,
    Unavailable,
    UnreadableState,
)
from shared.domain.reports import shorten

RETRY_AFTER_SECONDS = 1


def respond(
    document: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> func.HttpResponse:
    return func.HttpResponse(
        json.dumps(document), status_code=status, mimetype="application/json", headers=headers
    )


def respond_problem(error: LockstepError) -> func.HttpResponse:
    """What went wrong, as problem details; the type is the name of the error."""
    status = status_of(error)
    details = {"type": type(error).__name__, "status": status, "detail": shorten(str(error))}
    return func.HttpResponse(
        json.dumps(details),
        status_code=status,
        mimetype="application/problem+json",
        headers=retry_headers(error),
    )


def status_of(error: LockstepError) -> int:
    match error:
        case NotAuthenticated() | NotAllowed():
            return 401 if isinstance(error, NotAuthenticated) else 403
        case TooLarge():
            return 413
        case (
            ContentConflict()
            | NotHalted()
            | NotBlocked()
            | NotMissing()
            | NotOpen()
            | NotRepeatable()
            | UnreadableState()
            | ProducerDisconnected()
            | AlreadyPublished()
            | NumbersExhausted()
        ):
            return 409
        case CallerError():
            return 400
        case Throttled():
            return 429
        case _:
            return 503


def retry_headers(error: LockstepError) -> dict[str, str]:
    """When to come back, in whole seconds, for an error that time may mend."""
    if isinstance(error, CallerError):
        return {}
    wanted = error.retry_after_seconds if isinstance(error, Unavailable) else None
    return {"Retry-After": str(max(1, ceil(wanted or RETRY_AFTER_SECONDS)))}

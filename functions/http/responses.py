"""Responses of the HTTP triggers: JSON, and problem details (RFC 9457) for what failed."""

import json
from collections.abc import Mapping
from math import ceil
from typing import Any

import azure.functions as func

from shared.domain import errors
from shared.domain.errors import LockstepError
from shared.domain.reports import shorten

RETRY_AFTER_SECONDS = 1
# Where the documentation says what to do about an error, and about what needs attention: paths in
# the repository, which hold wherever the documentation is served.
ERROR_HELP = "docs/reference.md#{name}"
STANDSTILL_HELP = "docs/runbook.md#{kind}"
REPORT_HELP = "docs/runbook.md#something-is-in-the-error-queue"
# The status of an error is that of the first kind that it is of.
STATUSES: Mapping[type[LockstepError], int] = {
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.TooLarge: 413,
    errors.MessageFaulted: 422,
    errors.TooOld: 410,
    errors.UnknownSession: 404,
    errors.UnknownDecision: 404,
    errors.ContentConflict: 409,
    errors.NotHalted: 409,
    errors.NotBlocked: 409,
    errors.NotMissing: 409,
    errors.NotOpen: 409,
    errors.SessionEnded: 409,
    errors.NotRepeatable: 409,
    errors.UnreadableState: 409,
    errors.ProducerDisconnected: 409,
    errors.AlreadyPublished: 409,
    errors.NumbersExhausted: 409,
    errors.CallerError: 400,
    errors.Throttled: 429,
    errors.TooManyWatchers: 429,
}


def respond(
    document: Any,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    mimetype: str = "application/json",
) -> func.HttpResponse:
    return func.HttpResponse(
        json.dumps(document), status_code=status, mimetype=mimetype, headers=headers
    )


def respond_problem(error: LockstepError) -> func.HttpResponse:
    """Answer an error, as problem details."""
    details = describe_problem(error)
    return respond(details, details["status"], retry_headers(error), "application/problem+json")


def describe_problem(error: LockstepError) -> dict[str, Any]:
    """Its name as the `type`, its status and reason, and in `help` where the docs explain it."""
    # What refines an error elsewhere in the code is no name that a caller could look up.
    kinds = type(error).__mro__
    name = next(kind.__name__ for kind in kinds if kind.__module__ == errors.__name__)
    return {
        "type": name,
        "status": status_of(error),
        "detail": shorten(str(error)),
        "help": ERROR_HELP.format(name=name),
    }


def status_of(error: LockstepError) -> int:
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 503)


def retry_headers(error: LockstepError) -> dict[str, str]:
    """Return when to come back, in whole seconds, for an error that time may mend."""
    if isinstance(error, errors.CallerError):
        return {}
    wanted = error.retry_after_seconds if isinstance(error, errors.Unavailable) else None
    return {"Retry-After": str(max(1, ceil(wanted or RETRY_AFTER_SECONDS)))}

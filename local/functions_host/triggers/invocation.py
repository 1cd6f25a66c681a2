"""Saying in the log how an invocation ended."""

import logging

from local.functions_host.worker import Failed, Outcome, Succeeded

log = logging.getLogger(__name__)


def report(function: str, outcome: Outcome) -> bool:
    """Log a failure in full and a success for debugging; tell whether it succeeded."""
    match outcome:
        case Succeeded():
            log.debug("succeeded", extra={"function": function})
            return True
        case Failed(reason, stack, _):
            log.error("failed: %s\n%s", reason, stack, extra={"function": function})
            return False

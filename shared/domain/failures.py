"""The meaning of a service's failures: one table for the adapters and the in-memory twin.

The first rule that fits a failure gives its class. Nothing here reads or writes anything, and
docs/guarantees.md shows the same table, generated from the rules.
"""

from dataclasses import dataclass
from enum import StrEnum

from shared.domain.errors import (
    FailureReason,
    InvalidMessage,
    LockstepError,
    Misconfigured,
    NotStorable,
    OutcomeUnknown,
    Throttled,
    TooLarge,
    Unavailable,
)


class Service(StrEnum):
    STORE = "Cosmos DB"
    BUS = "Service Bus"


class FailureClass(StrEnum):
    """The class of a failure: what whoever asked may do next."""

    ANSWER = "an answer"  # it says what is stored, and the engine decides on it
    TRANSIENT = "transient"  # nothing happened; waiting helps
    MESSAGE = "never for this message"  # nothing happened, and the same will be refused for ever
    DESTINATION = "never for this destination"  # nothing happened before a person changes something
    UNKNOWN = "outcome unknown"  # it may have happened, or may still; read back


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer that came back instead of success.

    `code` is the HTTP status of Cosmos DB, or for Service Bus the name of the SDK's exception, or
    of the AMQP condition where the SDK has no exception for it. It is None where nothing came.
    """

    service: Service
    code: int | str | None = None
    sub_status: int | None = None
    is_write: bool = True


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One row of the table. A column that names nothing fits everything."""

    service: Service
    codes: tuple[int | str | None, ...]
    failure_class: FailureClass
    why: str
    sub_status: int | None = None
    is_write: bool | None = None
    # Where the class of the error does not say it.
    reason: FailureReason | None = None

    def fits(self, failure: Failure) -> bool:
        return (
            self.service is failure.service
            and (not self.codes or failure.code in self.codes)
            and self.sub_status in (None, failure.sub_status)
            and self.is_write in (None, failure.is_write)
        )


STORE, BUS = Service.STORE, Service.BUS
ANSWER, TRANSIENT, MESSAGE = FailureClass.ANSWER, FailureClass.TRANSIENT, FailureClass.MESSAGE
DESTINATION, UNKNOWN = FailureClass.DESTINATION, FailureClass.UNKNOWN

TOO_LARGE = 413
THROTTLED = 429
BUSY = "ServiceBusServerBusyError"
# Status and sub-status of Cosmos DB where there is no such container.
MISSING = (404, 1003)
# The code of a failure before anything was sent: there is nothing to authenticate with.
CREDENTIAL = "credential"

FAILURE_RULES: tuple[FailureRule, ...] = (
    # Cosmos DB: https://learn.microsoft.com/rest/api/cosmos-db/http-status-codes-for-cosmosdb
    FailureRule(STORE, (400,), DESTINATION, "The container has another partition key.", 1001),
    FailureRule(STORE, (400,), TRANSIENT, "The container was created anew a moment ago.", 1024),
    FailureRule(STORE, (400,), MESSAGE, "No container can hold the document.", is_write=True),
    FailureRule(STORE, (400,), DESTINATION, "The container lacks an index.", is_write=False),
    FailureRule(STORE, (401,), DESTINATION, "The key or the token is wrong."),
    FailureRule(STORE, (403,), TRANSIENT, "The write region has moved.", 3),
    FailureRule(STORE, (403,), TRANSIENT, "The account is not known there yet.", 1008),
    FailureRule(STORE, (403,), DESTINATION, "A key, a role, a firewall or a limit forbids it."),
    FailureRule(STORE, (404,), TRANSIENT, "The replica has not caught up yet.", 1002),
    FailureRule(
        STORE,
        (404,),
        DESTINATION,
        "The container or the database is missing.",
        1003,
        reason=FailureReason.RESOURCE_NOT_FOUND,
    ),
    FailureRule(STORE, (404, 409, 412), ANSWER, "It says what is stored."),
    FailureRule(STORE, (410, 449), TRANSIENT, "The partition moves, or another write is on it."),
    FailureRule(STORE, (TOO_LARGE,), MESSAGE, "The document or the batch is too large."),
    FailureRule(STORE, (THROTTLED,), TRANSIENT, "The request units of this second are spent."),
    FailureRule(STORE, (CREDENTIAL,), DESTINATION, "The key or the identity gives no token."),
    FailureRule(STORE, (), TRANSIENT, "It gave no answer to a read.", is_write=False),
    FailureRule(STORE, (), UNKNOWN, "It did not say whether it wrote.", is_write=True),
    # Service Bus: the exceptions of azure-servicebus, and AMQP conditions that have none.
    FailureRule(
        BUS,
        ("MessageSizeExceededError",),
        MESSAGE,
        "The message is too large.",
        reason=FailureReason.MESSAGE_SIZE_EXCEEDED,
    ),
    FailureRule(
        BUS,
        ("MessagingEntityNotFoundError", "MessagingEntityDisabledError"),
        DESTINATION,
        "The queue is missing, or it is disabled.",
        reason=FailureReason.RESOURCE_NOT_FOUND,
    ),
    FailureRule(
        BUS,
        ("ServiceBusAuthenticationError", "ServiceBusAuthorizationError", CREDENTIAL),
        DESTINATION,
        "The key, the role or the connection string is wrong, or there is no such queue.",
    ),
    FailureRule(
        BUS,
        ("ServiceBusQuotaExceededError",),
        DESTINATION,
        "The queue is full.",
        reason=FailureReason.QUOTA_EXCEEDED,
    ),
    FailureRule(
        BUS,
        (
            "amqp:not-allowed",
            "amqp:not-implemented",
            "com.microsoft:argument-error",
            "com.microsoft:argument-out-of-range",
        ),
        DESTINATION,
        "The queue is of another kind than the app needs.",
    ),
    FailureRule(BUS, (BUSY,), TRANSIENT, "The namespace is busy."),
    FailureRule(BUS, (), UNKNOWN, "It did not say whether it took the messages."),
)


def classify(failure: Failure) -> FailureRule:
    """The first rule that fits; every failure has one."""
    return next(rule for rule in FAILURE_RULES if rule.fits(failure))


def make_error(
    failure: Failure, text: str, retry_after_seconds: float | None = None
) -> LockstepError:
    """The failure as the engine sees it; `text` is what the service said.

    Raises ValueError for an answer, which is no error.
    """
    rule = classify(failure)
    error = error_of(failure, rule, f"{failure.service}: {rule.why} {text}", retry_after_seconds)
    error.reason = rule.reason or error.reason
    return error


def error_of(
    failure: Failure, rule: FailureRule, reason: str, retry_after_seconds: float | None
) -> LockstepError:
    """The error of a rule's class; raises ValueError for an answer."""
    match rule.failure_class:
        case FailureClass.TRANSIENT if failure.code in (THROTTLED, BUSY):
            return Throttled(reason, retry_after_seconds)
        case FailureClass.TRANSIENT:
            return Unavailable(reason)
        case FailureClass.MESSAGE if failure.service is BUS:
            return InvalidMessage(reason)
        case FailureClass.MESSAGE:
            return TooLarge(reason) if failure.code == TOO_LARGE else NotStorable(reason)
        case FailureClass.DESTINATION:
            return Misconfigured(reason)
        case FailureClass.UNKNOWN:
            return OutcomeUnknown(reason)
        case FailureClass.ANSWER:
            raise ValueError(f"{failure.code} is an answer of the store, not an error")

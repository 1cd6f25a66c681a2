"""The refusals of the broker: an AMQP error condition that SDKs map to their errors, and a text."""

from enum import StrEnum

from proton import ProtonException

# What Proton's Python binding raises where it reads what no client should have sent: texts that are
# not UTF-8 or ASCII, maps whose keys are maps, a thousand lists in each other. Proton itself looks
# at none of this.
UNREADABLE = (ProtonException, RecursionError, TypeError, ValueError)


class ErrorCondition(StrEnum):
    """Conditions of AMQP 1.0 (part 2, section 2.8.15) and, under `com.microsoft`, Service Bus's."""

    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED = "amqp:unauthorized-access"
    INTERNAL_ERROR = "amqp:internal-error"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    DECODE_ERROR = "amqp:decode-error"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
    CONNECTION_FORCED = "amqp:connection:forced"
    SERVER_BUSY = "com.microsoft:server-busy"
    TIMEOUT = "com.microsoft:timeout"
    ARGUMENT_ERROR = "com.microsoft:argument-error"
    ENTITY_ALREADY_EXISTS = "com.microsoft:entity-already-exists"
    MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
    MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
    SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
    SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"

    @property
    def short_name(self) -> str:
        """The name without its vendor, as the counters show it: `session-lock-lost`."""
        return self.value.rpartition(":")[2]


class AmqpError(Exception):
    """An operation was not applied, and why; nothing has changed."""

    def __init__(self, condition: ErrorCondition, description: str) -> None:
        super().__init__(f"{condition.value}: {description}")
        self.condition = condition
        self.description = description


# The statusCode of a response on `$management`; every other condition is a bad request.
STATUS_BAD_REQUEST = 400
STATUS_OF_CONDITION = {
    ErrorCondition.UNAUTHORIZED: 401,
    ErrorCondition.NOT_FOUND: 404,
    ErrorCondition.MESSAGE_NOT_FOUND: 404,
    ErrorCondition.TIMEOUT: 408,
    ErrorCondition.ENTITY_ALREADY_EXISTS: 409,
    ErrorCondition.MESSAGE_LOCK_LOST: 410,
    ErrorCondition.SESSION_LOCK_LOST: 410,
    ErrorCondition.INTERNAL_ERROR: 500,
    ErrorCondition.NOT_IMPLEMENTED: 501,
    ErrorCondition.SERVER_BUSY: 503,
}
# The other direction: the condition that an injected fault with an HTTP status stands for.
CONDITION_OF_STATUS = {
    401: ErrorCondition.UNAUTHORIZED,
    403: ErrorCondition.RESOURCE_LIMIT_EXCEEDED,  # a quota is used up
    404: ErrorCondition.NOT_FOUND,
    408: ErrorCondition.TIMEOUT,
    413: ErrorCondition.MESSAGE_SIZE_EXCEEDED,
    429: ErrorCondition.SERVER_BUSY,
    503: ErrorCondition.SERVER_BUSY,
}


def error_for_status(status: int) -> AmqpError:
    """Return a status's error: one outside the table is the client's, from 500 on the service's."""
    default = ErrorCondition.ARGUMENT_ERROR if status < 500 else ErrorCondition.INTERNAL_ERROR
    condition = CONDITION_OF_STATUS.get(status, default)
    return AmqpError(condition, f"A fault was armed: status {status}")

"""How the service says no: a condition that SDKs map to their own errors, and a sentence."""

from enum import StrEnum


class Condition(StrEnum):
    """AMQP error conditions; those of `com.microsoft` are Service Bus's own."""

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


class Refused(Exception):
    """An operation was not applied, and why; nothing has changed."""

    def __init__(self, condition: Condition, description: str) -> None:
        super().__init__(f"{condition.value}: {description}")
        self.condition = condition
        self.description = description


MEANING_OF_STATUS = {
    401: Condition.UNAUTHORIZED,
    403: Condition.RESOURCE_LIMIT_EXCEEDED,  # a quota is used up
    404: Condition.NOT_FOUND,
    408: Condition.TIMEOUT,
    413: Condition.MESSAGE_SIZE_EXCEEDED,
    429: Condition.SERVER_BUSY,
    503: Condition.SERVER_BUSY,
}


def refusal_of(status: int) -> Refused:
    """What an HTTP status means here; one without a meaning of its own is the client's error, or
    from 500 on the service's."""
    otherwise = Condition.ARGUMENT_ERROR if status < 500 else Condition.INTERNAL_ERROR
    return Refused(MEANING_OF_STATUS.get(status, otherwise), f"A fault was armed: status {status}")

"""How the service says no: a condition that SDKs map to their own errors, and a sentence."""

from enum import StrEnum


class Condition(StrEnum):
    """AMQP error conditions; those of `com.microsoft` are Service Bus's own."""

    NOT_FOUND = "amqp:not-found"
    NOT_ALLOWED = "amqp:not-allowed"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    DECODE_ERROR = "amqp:decode-error"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
    CONNECTION_FORCED = "amqp:connection:forced"
    SERVER_BUSY = "com.microsoft:server-busy"
    TIMEOUT = "com.microsoft:timeout"
    ARGUMENT_ERROR = "com.microsoft:argument-error"
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

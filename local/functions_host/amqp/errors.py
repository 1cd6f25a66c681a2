"""What can go wrong between the host and a namespace."""


class ConnectionLost(Exception):
    """The namespace cannot be reached, or the connection to it broke."""


class RequestRefused(Exception):
    """The namespace answered with an error condition."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition


class LockLost(Exception):
    """The session, or the lock of one of its messages, is no longer ours."""

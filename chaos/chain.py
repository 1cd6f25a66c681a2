"""The digest chain of a session: what was applied, in which order, in one short text."""

from hashlib import sha256

START = ""


def digest(message_type: str, body: bytes) -> str:
    """What a message says, as a hex SHA-256 of its type and body."""
    return sha256(message_type.encode() + b"\0" + body).hexdigest()


def link(before: str, message_id: str, content: str) -> str:
    """The chain after one more message, of this id and content."""
    return sha256(f"{before}\n{message_id}\n{content}".encode()).hexdigest()

"""A message as the caller of the public client sees it: content, and the number it was given."""

from shared.domain.errors import AlreadyPublished
from shared.domain.producer import Draft

# Only to check a message before its session is known.
ANY_SESSION = "session"


class SessionMessage:
    """Content to be published once, under an id of the caller's that stays the same on every try.

    `published_sequence_number` is None until it was published, and stays None after a failure.
    `time`, `reply_to` and `reply_session` are those of Message. Raises InvalidMessage for what
    could be sent to no session.
    """

    def __init__(
        self,
        message_id: str,
        message_type: str,
        body: bytes | str,
        *,
        time: str | None = None,
        reply_to: str | None = None,
        reply_session: str | None = None,
    ) -> None:
        content = body.encode() if isinstance(body, str) else bytes(body)
        self._draft = Draft(message_id, message_type, content, time, reply_to, reply_session)
        self._draft.in_session(ANY_SESSION)
        self._published: int | None = None

    @property
    def draft(self) -> Draft:
        """The content, without a number."""
        return self._draft

    @property
    def published_sequence_number(self) -> int | None:
        """The number it was published under."""
        return self._published

    def require_unpublished(self) -> None:
        """Raise AlreadyPublished where it has a number."""
        if self._published is not None:
            raise AlreadyPublished(
                f"message {self._draft.id!r} was published as number {self._published}"
            )

    def mark_published(self, sequence: int) -> None:
        """Remember the number; only a producer says so."""
        self._published = sequence

    def __repr__(self) -> str:
        return f"SessionMessage(id={self._draft.id!r}, number={self._published})"

"""Notices: a handler that calls an outside service, through a client that is given to it.

A session is a recipient. Copy this module for a handler that must act outside the journal: the
client is a small Protocol, and `build_handlers` takes one. A test gives it its own, and
`connect_handlers`, which the app finds, the real one.

What is promised: notices of a recipient are posted one after the other, in the sender's order, and
an entry says that a notice was accepted only after the service answered. What is not: that the
service is called once. Lockstep calls it again whenever it cannot know what became of a call, for
example when the worker died before its commit. So every call for a message carries the same key,
and the service must answer a known key with the receipt it gave before, and do nothing else.
"""

from http import HTTPStatus
from typing import Protocol

from pydantic import BaseModel, Field

from lockstep import Context, Handlers, InvalidBody, Kind

TIMEOUT_SECONDS = 10.0
# A later attempt may succeed; every other 4xx answer says that the notice itself is wrong.
WORTH_RETRYING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class Notice(BaseModel):
    """A notice to a recipient."""

    subject: str = Field(min_length=1)
    text: str


class NoticeLog(BaseModel):
    """The number of notices that a recipient accepted, and the receipt of the last one."""

    accepted: int = 0
    receipt: str | None = None


class NoticeService(Protocol):
    """Whoever takes notices to their recipients."""

    async def post(self, key: str, recipient: str, notice: Notice) -> str:
        """Accept a notice and return its receipt: for the same key the same one, and no new notice.

        Raises InvalidBody for a notice that will never be accepted, and any other exception where
        another attempt may help.
        """
        ...


class HttpNoticeService:
    """A service that takes a POST with an `Idempotency-Key` and answers `{"receipt": "..."}`.

    It connects for each notice, so that nothing is left open when the worker stops.
    """

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.url = url
        self.timeout_seconds = timeout_seconds

    async def post(self, key: str, recipient: str, notice: Notice) -> str:
        from aiohttp import ClientSession, ClientTimeout

        if not self.url:
            raise InvalidBody("notices have nowhere to go: LOCKSTEP_NOTICE_URL is not set")
        content = {"recipient": recipient, **notice.model_dump()}
        # Without a limit a silent service would hold the session's claim for as long as it likes.
        async with (
            ClientSession(timeout=ClientTimeout(total=self.timeout_seconds)) as session,
            session.post(self.url, json=content, headers={"Idempotency-Key": key}) as response,
        ):
            status = response.status
            if 400 <= status < 500 and status not in WORTH_RETRYING:
                raise InvalidBody(f"the notice service answered {status}")
            response.raise_for_status()
            return str((await response.json())["receipt"])


def build_handlers(service: NoticeService) -> Handlers:
    """The handlers of notices, which tell this service."""
    handlers = Handlers()

    @handlers.register("notice.send", state=NoticeLog, body=Notice, kind=Kind.EFFECTFUL)
    async def send_notice(log: NoticeLog, notice: Notice, context: Context) -> NoticeLog:
        # Not uuid4: another attempt, in another process or region, must send the same key.
        key = context.new_id()
        receipt = await service.post(key, context.message.session, notice)
        return NoticeLog(accepted=log.accepted + 1, receipt=receipt)

    return handlers


class NoticeSettings(Protocol):
    """The app's settings that the handlers of notices need."""

    @property
    def notice_url(self) -> str: ...


def connect_handlers(settings: NoticeSettings) -> Handlers:
    """The handlers of notices with the service of the app's settings; nothing is called yet."""
    return build_handlers(HttpNoticeService(settings.notice_url))

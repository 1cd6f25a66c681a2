"""Ask an app over HTTP: a message is applied at once in one of its regions, and answered."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from shared.domain import errors
from shared.domain.errors import (
    CallerError,
    InvalidMessage,
    InvalidOptions,
    LockstepError,
    NotAuthenticated,
    OutcomeUnknown,
    Unavailable,
)
from shared.domain.message import require_text
from shared.engine.consume.outcomes import Answered
from shared.publishing.message import SessionMessage

# What a request takes besides the time that the app is given to answer.
REQUEST_SECONDS = 5.0
PAUSE_SECONDS = 1.0
ANSWERED, WAITING, REFUSED, TOO_MANY, BROKEN = 200, 202, 400, 429, 500

type BearerToken = str | Callable[[], Awaitable[str]]


class Asker:
    """Asks an app by the addresses of its regions, in this order; open inside an `async with`.

    `key` is a function key and `token` a token of Entra ID, or a function that gets one. A message
    acts once by its id, whichever regions are asked, so one that gives no answer is followed by
    the next. What the app is given to answer is `wait_seconds`, and all of it ends after
    `timeout_seconds`. Raises InvalidOptions for what is no address.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        key: str = "",
        token: BearerToken = "",
        wait_seconds: int = 10,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        if not urls or any(urlsplit(url).scheme not in ("http", "https") for url in urls):
            raise InvalidOptions(f"these are no addresses of an app: {urls}")
        self.key = key
        self.token = token
        self.wait_seconds = wait_seconds
        self.timeout_seconds = timeout_seconds
        self.client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        limit = aiohttp.ClientTimeout(self.wait_seconds + REQUEST_SECONDS)
        self.client = aiohttp.ClientSession(timeout=limit)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.client is not None:
            await self.client.close()

    async def ask(self, session: str, message: SessionMessage) -> Answered:
        """Apply a message in its turn, unless that was done before under its id.

        Returns what its handler answered, and where. Raises

        - MessageFaulted: it did not take effect, for the reason that the journal has;
        - SessionEnded: it did not, because the session had ended;
        - any other CallerError: it was not taken, or nobody knows any more what came of it;
        - Unavailable: no region could be asked, so nothing happened;
        - OutcomeUnknown: time is over. It may take effect, or waits in the journal: ask the same.
        """
        require_text("session", session)
        if message.draft.reply_to is not None:
            raise InvalidMessage("who asks is answered: a message that is asked has no reply_to")
        last: LockstepError = OutcomeUnknown("nobody was asked")
        is_sure, loop = True, asyncio.get_running_loop()
        end_at = loop.time() + self.timeout_seconds
        try:
            async with asyncio.timeout(self.timeout_seconds):
                while True:
                    for url in self.urls:
                        was_sure, is_sure = is_sure, False
                        last = OutcomeUnknown(f"{url} gave no answer in time")
                        try:
                            return await self.ask_region(url, session, message)
                        except Unavailable as error:
                            last, is_sure = error, was_sure
                        except OutcomeUnknown as error:
                            last = error
                    hint = last.retry_after_seconds if isinstance(last, Unavailable) else None
                    pause = max(PAUSE_SECONDS, hint or 0.0)
                    if loop.time() + pause >= end_at:
                        raise TimeoutError
                    await asyncio.sleep(pause)
        except TimeoutError:
            # What was refused before it was asked of anybody did not happen.
            kind = Unavailable if is_sure else OutcomeUnknown
            raise kind(f"{last} (for {self.timeout_seconds:g} s)") from None

    async def ask_region(self, url: str, session: str, message: SessionMessage) -> Answered:
        """Ask one region once; raises as `ask` does."""
        if self.client is None:
            raise InvalidOptions("an asker is open inside `async with` only")
        draft, token = message.draft, self.token
        headers = {"Idempotency-Key": draft.id, "Prefer": f"wait={self.wait_seconds}"}
        if self.key:
            headers["x-functions-key"] = self.key
        if token:
            shown = token if isinstance(token, str) else await token()
            headers["Authorization"] = f"Bearer {shown}"
        if draft.traceparent:
            headers["traceparent"] = draft.traceparent
        query = {"session": session, "type": draft.type}
        if draft.time:
            query["time"] = draft.time
        where = f"{url}/api/sessions/-/messages"
        try:
            async with self.client.post(
                where, params=query, data=draft.body, headers=headers
            ) as response:
                after = response.headers.get("Retry-After", "")
                return read_answer(url, response.status, await response.read(), after)
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(f"{url} cannot be reached: {error}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OutcomeUnknown(f"{url} gave no answer: {error!r}") from error


def read_answer(url: str, status: int, body: bytes, retry_after: str) -> Answered:
    """The answer of a region; raises as `Asker.ask` does."""
    try:
        found: Any = json.loads(body)
    except ValueError:
        found = None
    document = found if isinstance(found, dict) else {}
    if status == ANSWERED and "position" in document:
        return Answered(document["position"], document["version"], document["answer"])
    if status == WAITING:
        raise OutcomeUnknown(f"{url} has the message, which waits for its turn or for a person")
    known = getattr(errors, str(document.get("type")), None)
    detail = str(document.get("detail") or f"{url} answered {status}")
    if status in (401, 403) and known is None:
        raise NotAuthenticated(f"{url} takes neither the key nor the token")
    if isinstance(known, type) and issubclass(known, CallerError):
        raise known(detail)
    if status == TOO_MANY or (isinstance(known, type) and issubclass(known, Unavailable)):
        seconds = float(retry_after) if retry_after.isdecimal() else None
        raise Unavailable(f"{url}: {detail}", seconds)
    if REFUSED <= status < BROKEN:
        raise CallerError(detail)
    raise OutcomeUnknown(f"{url}: {detail}")

"""HTTP to a running app: one of its regions, within a time; errors say what to do next."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
    SSLError,
)

from cli.failures import CommandFailed, Misuse, NoAnswer

CONNECT_SECONDS = 5.0
CHUNK_BYTES = 65_536
ANSWER_BYTES_MAX = 64 * 2**20
# Connections that are kept to a region: as many as publish side by side.
CONNECTIONS = 8
# The connection never came about, so nothing was asked.
NEVER_ASKED = (ConnectTimeoutError, NameResolutionError, NewConnectionError, SSLError)


class NotReached(NoAnswer):
    """No connection came about: nothing was asked."""


class Silent(NoAnswer):
    """It was asked, and nobody knows what came of it."""


class AppRefused(CommandFailed):
    """The app says no, or not now; `kind` is the name of its error."""

    def __init__(self, text: str, kind: str, http_status: int) -> None:
        super().__init__(text)
        self.kind = kind
        self.http_status = http_status


class AppUnavailable(AppRefused, NoAnswer):
    """The app answers that it cannot for the moment; `seconds` says when to come back."""

    def __init__(self, text: str, kind: str, http_status: int, seconds: float) -> None:
        super().__init__(text, kind, http_status)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class AppClient:
    """The app's regions in the order in which they are asked. May be used by several threads."""

    urls: tuple[str, ...]
    key: str = field(repr=False)
    seconds: float
    pool: urllib3.PoolManager = field(
        default_factory=lambda: urllib3.PoolManager(maxsize=CONNECTIONS), repr=False
    )
    tell: Callable[[str], None] = field(default=lambda _: None, repr=False)
    token: str = field(default="", repr=False)

    @classmethod
    def of(
        cls,
        urls: str,
        key: str,
        seconds: float,
        tell: Callable[[str], None] = lambda _: None,
        *,
        token: str = "",
    ) -> "AppClient":
        """A client of comma separated addresses; raises Misuse for what is no address."""
        found = tuple(url.strip().rstrip("/") for url in urls.split(",") if url.strip())
        if not found:
            raise Misuse("no app is named: set LOCKSTEP_URL to its address, or say --url")
        for url in found:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
                raise Misuse(
                    f"{url!r} is no address of an app, such as https://NAME.azurewebsites.net"
                )
        if not isfinite(seconds):
            raise Misuse(f"{seconds} is no time to wait for an answer")
        return cls(found, key, seconds, tell=tell, token=token)

    def get(self, path: str, **query: str | None) -> Any:
        """Return the answer of the first region that can; raises NoAnswer and AppRefused."""
        return self.ask("GET", path, query, is_repeatable=True)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | None],
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        is_repeatable: bool = False,
    ) -> Any:
        """Ask one region after the other until one answers.

        What is not repeatable goes to the next region only where nothing was asked of the one
        before. Raises NotReached, Silent, AppUnavailable for the last region that was asked, and
        AppRefused for what no region would do.
        """
        given = {name: value for name, value in query.items() if value is not None}
        where = f"/api/{path}" + (f"?{urlencode(given)}" if given else "")
        for url in self.urls[:-1]:
            try:
                return self.ask_region(url, method, where, body, headers)
            except NoAnswer as error:
                if not is_repeatable and not isinstance(error, NotReached):
                    raise
                self.tell(f"{error}; asking the next region")
        return self.ask_region(self.urls[-1], method, where, body, headers)

    def ask_region(
        self,
        url: str,
        method: str,
        where: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The document that one region answers, whole within the time; raises as `ask` does."""
        limit = time.monotonic() + self.seconds
        # Key and token in headers: what stands in a URL is kept in logs.
        shown = dict(headers or {})
        if self.key:
            shown["x-functions-key"] = self.key
        if self.token:
            shown["Authorization"] = f"Bearer {self.token}"
        try:
            response = self.pool.request(
                method,
                url + where,
                body=body or None,
                headers=shown,
                timeout=urllib3.Timeout(
                    connect=min(CONNECT_SECONDS, self.seconds), read=self.seconds
                ),
                retries=False,
                preload_content=False,
            )
            parts: list[bytes] = []
            with response:
                # A peer that drips is as silent as one that says nothing.
                while part := response.read1(CHUNK_BYTES):
                    parts.append(part)
                    if time.monotonic() > limit or sum(map(len, parts)) > ANSWER_BYTES_MAX:
                        raise Silent(f"{url} did not come to the end of its answer")
        except NEVER_ASKED as error:
            reason = str(error).partition(": ")[2] or str(error)
            raise NotReached(f"{url} cannot be reached: {reason}") from error
        except LocationParseError as error:
            raise Misuse(f"{url!r} is no address: {error}") from error
        except (HTTPError, OSError) as error:
            raise Silent(f"{url} gave no answer within {self.seconds:g} s: {error}") from error
        document = read_document(b"".join(parts))
        if response.status < 300:
            return document
        retry_after = response.headers.get("Retry-After")
        raise put_refusal_into_words(url, response.status, document, retry_after)


def read_document(body: bytes) -> Any:
    """JSON, or the text where it is none."""
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode(errors="replace")


def put_refusal_into_words(
    url: str, status: int, document: Any, retry_after: str | None
) -> AppRefused:
    """Return the meaning of an answer that is no success, and what to do next."""
    problem = document if isinstance(document, dict) else {}
    kind, detail = str(problem.get("type", "")), str(problem.get("detail", ""))
    if status in (401, 403) and not kind:
        text = f"{url} does not take the key: set LOCKSTEP_KEY to a function key of this app,"
        text += " or LOCKSTEP_TOKEN to a token of Entra ID for it"
        return AppRefused(text, "KeyRefused", status)
    if status == 404 and ("session" in problem or "key" in problem):
        name = problem.get("session") or problem.get("key")
        return AppRefused(f"there is nothing of {name!r} at {url}", "NotFound", status)
    if status == 404 and not kind:
        text = f"{url} has no such route: is it a Lockstep app, and of this version?"
        text += " Only an app that has sagas has routes of sagas."
        return AppRefused(text, "NoRoute", status)
    text = f"{kind}: {detail}" if kind else f"{url} answered {status}"
    if kind and "help" in problem:
        text += f" ({problem['help']})"
    if status in (429, 502, 503, 504) or status >= 500:
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 1.0
        return AppUnavailable(f"{url}: {text}", kind, status, seconds)
    return AppRefused(text, kind, status)

"""Notices reach an outside service, under one key each however often the service is called."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientConnectionError, ClientResponseError, web
from aiohttp.test_utils import TestServer

from functions.handlers.notices import HttpNoticeService, Notice, build_handlers
from shared.domain.errors import InvalidBody
from shared.testkit import exercise, given

RECIPIENT = "ops@example.org"
NOTICE = Notice(subject="UA1545", text="delayed by 11 minutes")


class RecordedNotices:
    """A service in memory: one notice for each key, after as many failures as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: Counter[str] = Counter()
        self.accepted: dict[str, tuple[str, str]] = {}

    async def post(self, key: str, recipient: str, notice: Notice) -> str:
        self.calls[key] += 1
        if self.calls[key] <= self.failures:
            raise ClientConnectionError("the service is out of reach")
        self.accepted[key] = (recipient, notice.subject)
        return f"receipt-{key}"


@pytest.mark.slow
def test_whatever_happens_to_a_message_its_notice_has_one_key() -> None:
    service = RecordedNotices()
    subjects = ["departed", "delayed", "arrived"]
    notices = [given(RECIPIENT, "notice.send", {"subject": s, "text": ""}) for s in subjects]

    report = exercise(build_handlers(service), notices)

    assert report.state(RECIPIENT)["accepted"] == len(subjects)
    assert report.faults == ()
    # The service was called in each of several hundred runs, and after a death once more.
    assert min(service.calls.values()) > report.runs / 2
    assert sorted(service.accepted.values()) == sorted((RECIPIENT, s) for s in subjects)


def test_a_service_that_is_out_of_reach_is_called_again_with_the_same_key() -> None:
    service = RecordedNotices(failures=2)

    report = exercise(build_handlers(service), [given(RECIPIENT, "notice.send", NOTICE)])

    ((key, accepted),) = service.accepted.items()
    assert accepted == (RECIPIENT, "UA1545")
    assert report.state(RECIPIENT) == {"accepted": 1, "receipt": f"receipt-{key}"}


type Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(answer: Answer) -> AsyncIterator[str]:
    """The address of an HTTP service on this machine."""
    app = web.Application()
    app.router.add_post("/notices", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/notices"))


async def test_the_http_service_is_given_the_key_and_gives_the_receipt() -> None:
    received: list[tuple[str | None, object]] = []

    async def accept(request: web.Request) -> web.Response:
        received.append((request.headers.get("Idempotency-Key"), await request.json()))
        return web.json_response({"receipt": "r-7"}, status=202)

    async with serve(accept) as url:
        receipt = await HttpNoticeService(url).post("k-1", RECIPIENT, NOTICE)

    assert receipt == "r-7"
    assert received == [("k-1", {"recipient": RECIPIENT, **NOTICE.model_dump()})]


@pytest.mark.parametrize(
    ("status", "raised"),
    [
        (400, InvalidBody),
        (409, InvalidBody),
        (408, ClientResponseError),
        (429, ClientResponseError),
        (503, ClientResponseError),
    ],
)
async def test_only_a_notice_that_is_wrong_itself_is_given_up_at_once(
    status: int, raised: type[Exception]
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serve(refuse) as url:
        with pytest.raises(raised, match=str(status)):
            await HttpNoticeService(url).post("k-1", RECIPIENT, NOTICE)


async def test_a_silent_service_does_not_hold_the_session() -> None:
    async def stay_silent(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with serve(stay_silent) as url:
        with pytest.raises(TimeoutError):
            await HttpNoticeService(url, timeout_seconds=0.05).post("k-1", RECIPIENT, NOTICE)


async def test_without_an_address_the_missing_setting_is_named() -> None:
    with pytest.raises(InvalidBody, match="LOCKSTEP_NOTICE_URL is not set"):
        await HttpNoticeService("").post("k-1", RECIPIENT, NOTICE)

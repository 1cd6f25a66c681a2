"""The regions of an account that do not answer, as the transport of its client deals with them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpResponse, HttpRequest

from proof.simulation.world import virtual_time
from shared.adapters.cosmos import AccountTransport, NotAnswered

SECONDS = 3.0
ACCOUNT, EAST, WEST = "https://account/", "https://account-east/", "https://account-west/"
IS_BATCH = {"x-ms-cosmos-is-batch-request": "True"}


class Answer(AsyncHttpResponse):
    """An answer of a region."""

    def __init__(self, request: HttpRequest, document: object, status: int = 200) -> None:
        super().__init__(request, None)
        self.status_code, self.document = status, document

    def body(self) -> bytes:
        return json.dumps(self.document).encode()


class Regions:
    """The hosts of an account: what each was sent, which are silent or gone, and how fast."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.silent: set[str] = set()
        self.refusing: set[str] = set()
        self.unavailable: set[str] = set()
        self.status = 503
        self.seconds = 0.1

    async def answer(self, _transport: object, request: HttpRequest, **_options: object) -> Answer:
        host = urlsplit(request.url).netloc
        self.sent.append(host)
        if host in self.refusing:
            raise ServiceRequestError("refused")
        await asyncio.sleep(float("inf") if host in self.silent else self.seconds)
        locations = [{"name": u, "databaseAccountEndpoint": u} for u in (EAST, WEST)]
        status = self.status if host in self.unavailable else 200
        return Answer(request, {"readableLocations": locations}, status)


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> Regions:
    found = Regions()

    async def send(transport: object, request: HttpRequest, **options: object) -> Answer:
        return await found.answer(transport, request, **options)

    monkeypatch.setattr(AioHttpTransport, "send", send)
    return found


def in_virtual_time(scenario: Callable[[Regions], Any]) -> Callable[[Regions], None]:
    """A test of a scenario, in which a second passes only while everything waits."""

    def run(regions: Regions) -> None:
        virtual_time.run(scenario(regions))

    return run


def new_transport() -> AccountTransport:
    return AccountTransport(None, SECONDS)


def write(region: str = EAST) -> HttpRequest:
    return HttpRequest("POST", f"{region}dbs/a/colls/b/docs", headers=IS_BATCH)


def read(region: str = EAST) -> HttpRequest:
    return HttpRequest("GET", f"{region}dbs/a/colls/b/docs/c")


@in_virtual_time
async def test_when_a_region_is_silent_one_request_at_a_time_is_sent_to_it(
    regions: Regions,
) -> None:
    transport = new_transport()
    regions.silent = {"account-east"}

    first = await asyncio.gather(*(transport.send(write()) for _ in range(5)))
    at_once = await asyncio.gather(*(transport.send(write()) for _ in range(5)))

    assert [one.was_sent for one in first] == [True] * 5
    # It was tried a whole try ago, so one of the next is sent, and nothing else meanwhile.
    assert sorted(one.was_sent for one in at_once) == [False] * 4 + [True]
    assert len(regions.sent) == 6
    for one in (*first, *at_once):
        assert (one.status_code, one.headers["x-ms-substatus"]) == (403, "3")


def test_when_a_silent_region_answers_again_everything_is_sent_to_it(
    regions: Regions, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        transport = new_transport()
        regions.silent = {"account-east"}
        await asyncio.gather(*(transport.send(write()) for _ in range(3)))
        regions.silent = set()

        await transport.send(write())
        answers = await asyncio.gather(*(transport.send(write()) for _ in range(5)))

        assert [type(one) for one in answers] == [Answer] * 5

    virtual_time.run(scenario())
    assert caplog.messages == [
        "nothing is heard of account-east, of the journal's account",
        "account-east, of the journal's account, answers again",
    ]


@in_virtual_time
async def test_when_a_region_is_silent_a_read_is_left_to_another(regions: Regions) -> None:
    transport = new_transport()
    regions.silent = {"account-east"}

    for _ in range(2):
        with pytest.raises(ServiceRequestError, match="account-east"):
            await transport.send(read())
    assert type(await transport.send(read(WEST))) is Answer


@in_virtual_time
async def test_one_slow_answer_among_others_is_no_silence(regions: Regions) -> None:
    transport = new_transport()
    regions.silent = {"account-east"}
    slow = asyncio.create_task(transport.send(write()))
    await asyncio.sleep(1)
    regions.silent = set()
    await transport.send(write())

    assert (await slow).was_sent
    assert type(await transport.send(write())) is Answer


@in_virtual_time
async def test_when_a_region_refuses_connections_every_request_tries_it(regions: Regions) -> None:
    transport = new_transport()
    regions.refusing = {"account-east"}

    answers = [await transport.send(write()) for _ in range(3)]

    assert [type(one) for one in answers] == [NotAnswered] * 3
    assert len(regions.sent) == 3


@pytest.mark.parametrize("status", [408, 500, 503])
def test_when_a_region_says_that_it_cannot_write_another_one_is_looked_for(
    regions: Regions, status: int
) -> None:
    async def scenario() -> None:
        transport = new_transport()
        regions.unavailable, regions.status = {"account-east"}, status

        answer = await transport.send(write())
        assert (type(answer), answer.was_sent) == (NotAnswered, True)
        # The SDK reads elsewhere by itself.
        assert (await transport.send(read())).status_code == status

    virtual_time.run(scenario())


@pytest.mark.parametrize("how", ["silent", "refusing", "unavailable"])
def test_when_the_address_of_the_account_is_gone_a_region_describes_it(
    regions: Regions, how: str
) -> None:
    async def scenario() -> None:
        transport = new_transport()
        await transport.send(HttpRequest("GET", ACCOUNT))
        # The account's own address leads to the region that is gone.
        setattr(regions, how, {"account", "account-east"})
        await asyncio.sleep(5)

        answer = await transport.send(HttpRequest("GET", ACCOUNT))

        assert type(answer) is Answer
        assert regions.sent == ["account", "account", "account-east", "account-west"]

    virtual_time.run(scenario())


@in_virtual_time
async def test_when_a_region_is_asked_whether_it_is_there_no_other_answers(
    regions: Regions,
) -> None:
    transport = new_transport()
    await transport.send(HttpRequest("GET", ACCOUNT))
    regions.refusing = {"account-east"}

    with pytest.raises(ServiceRequestError):
        await transport.send(HttpRequest("GET", EAST))


@in_virtual_time
async def test_calls_that_look_for_the_write_region_ask_once_a_second(regions: Regions) -> None:
    transport = new_transport()

    for _ in range(3):
        await asyncio.gather(*(transport.send(HttpRequest("GET", ACCOUNT)) for _ in range(20)))
        await asyncio.sleep(1)

    assert regions.sent == ["account"] * 3

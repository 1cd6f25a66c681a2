"""The host's storage account is asked by the app's identity, and what it answers is named."""

from types import TracebackType
from typing import Any, Self

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceRequestError
from azure.core.pipeline.transport import AsyncHttpTransport

from shared.adapters.storage import StorageAccount
from shared.domain.errors import Unavailable
from shared.settings import Settings
from shared.wiring import connect
from tests.unit.shared.test_settings import ENVIRONMENT
from tests.world import handlers

ENDPOINT = "https://steast.blob.core.windows.net/"


class Identity:
    """Whoever asks for a token gets one."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken("t", 2**40)


class Answer:
    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code, self.headers = status, headers

    async def read(self) -> bytes:
        return b""


class Wire(AsyncHttpTransport[Any, Any]):
    """Answers each request with a status, or with an error of the transport."""

    def __init__(self, answers: list[int | Exception]) -> None:
        self.answers = answers
        self.asked: list[Any] = []

    async def send(self, request: Any, **_: Any) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Answer(answer, {"x-ms-error-code": "AuthorizationFailure"})

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...


@pytest.fixture(autouse=True)
def _an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.adapters.storage.DefaultAzureCredential", Identity)


async def test_one_that_answers_is_asked_with_a_token() -> None:
    wire = Wire([200])

    await StorageAccount(ENDPOINT, "me", transport=wire).look()

    (request,) = wire.asked
    assert request.url == f"{ENDPOINT}?comp=list&maxresults=1"
    assert request.headers["Authorization"] == "Bearer t"
    assert request.headers["x-ms-version"]


async def test_one_that_refuses_or_cannot_be_reached_is_told_by_its_reason_each_time() -> None:
    wire = Wire([403, ServiceRequestError("no route"), 200])
    account = StorageAccount(ENDPOINT, "me", transport=wire)

    with pytest.raises(Unavailable, match="it refuses: 403 AuthorizationFailure"):
        await account.look()
    with pytest.raises(Unavailable, match="it cannot be reached: no route"):
        await account.look()
    await account.look()


@pytest.mark.parametrize("is_set", [True, False])
def test_it_is_watched_where_an_identity_reaches_it(is_set: bool) -> None:
    more = {"AzureWebJobsStorage__blobServiceUri": ENDPOINT} if is_set else {}

    services = connect(Settings.read(ENVIRONMENT | more), handlers)

    assert bool(services.missing_places.watched) is is_set
    assert services.missing_places.watched <= services.missing_places.places.keys()

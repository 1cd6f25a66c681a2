"""What a service says has one meaning, whichever SDK object says it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import aiohttp
import azure.core.exceptions
import azure.cosmos.exceptions
import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.core.pipeline.transport import HttpRequest
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
from azure.servicebus import exceptions as bus
from azure.servicebus._transport._pyamqp_transport import _ERROR_CODE_TO_ERROR_MAPPING

from proof.simulation.world import virtual_time
from shared.adapters.cosmos import (
    CosmosAccount,
    CosmosContainer,
    NotAnswered,
    Tries,
    convert,
    read_failure,
    reading,
)
from shared.adapters.service_bus import Namespace, ServiceBus, code_of
from shared.domain.errors import (
    InvalidMessage,
    LockstepError,
    Misconfigured,
    NotStorable,
    OutcomeUnknown,
    Throttled,
    TooLarge,
    Unavailable,
)
from shared.domain.failures import (
    BUS,
    FAILURE_RULES,
    STORE,
    Failure,
    FailureClass,
    classify,
    make_error,
)
from shared.ports import Query
from shared.testkit.injected_faults import CallFault, FaultPlan

CALL_SECONDS = 10.0


def headers_of(sub_status: int | None) -> dict[str, str]:
    return {"x-ms-substatus": str(sub_status)} if sub_status else {}


def answer(status: int, sub_status: int | None = None) -> CosmosHttpResponseError:
    """What the SDK raises for a status."""
    response: Any = SimpleNamespace(
        status_code=status,
        reason="",
        headers=headers_of(sub_status),
        request=SimpleNamespace(url="https://account/dbs/a/colls/b/docs"),
    )
    return CosmosHttpResponseError(message="said the store", response=response)


def not_answered(*, was_sent: bool) -> NotAnswered:
    """What the SDK gets for a write that its region left without an answer."""
    return NotAnswered(
        HttpRequest("POST", "https://account/docs"), "account-east is silent", was_sent=was_sent
    )


# Status, sub-status, and what a write and a read of it raise.
ANSWERED: list[tuple[int, int | None, type[LockstepError], type[LockstepError]]] = [
    (400, None, NotStorable, Misconfigured),
    (400, 1001, Misconfigured, Misconfigured),
    (400, 1024, Unavailable, Unavailable),
    (401, None, Misconfigured, Misconfigured),
    (403, None, Misconfigured, Misconfigured),
    (403, 3, Unavailable, Unavailable),
    (403, 1008, Unavailable, Unavailable),
    (403, 5300, Misconfigured, Misconfigured),
    (404, 1002, Unavailable, Unavailable),
    (404, 1003, Misconfigured, Misconfigured),
    (408, None, OutcomeUnknown, Unavailable),
    (410, 1002, Unavailable, Unavailable),
    (413, None, TooLarge, TooLarge),
    (429, 3200, Throttled, Throttled),
    (449, None, Unavailable, Unavailable),
    (500, None, OutcomeUnknown, Unavailable),
    (503, None, OutcomeUnknown, Unavailable),
    (599, None, OutcomeUnknown, Unavailable),
    (418, None, OutcomeUnknown, Unavailable),
]


@pytest.mark.parametrize(("status", "sub_status", "written", "read"), ANSWERED)
def test_an_answer_to_a_request_or_an_operation_of_a_batch_is_one_of_the_engines_errors(
    status: int,
    sub_status: int | None,
    written: type[LockstepError],
    read: type[LockstepError],
) -> None:
    error = answer(status, sub_status)
    in_a_batch = CosmosBatchOperationError(
        error_index=0, headers=headers_of(sub_status), status_code=status, message="refused"
    )

    for one, is_write, expected in (
        (error, True, written),
        (error, False, read),
        (in_a_batch, True, written),
    ):
        assert type(convert(read_failure(one, is_write=is_write), one)) is expected


@pytest.mark.parametrize("status", [404, 409, 412])
async def test_what_says_what_is_stored_passes_unchanged(status: int) -> None:
    assert weigh(answer(status), Tries()) is None
    with pytest.raises(CosmosHttpResponseError):
        async with reading():
            raise answer(status)


async def test_a_container_that_is_missing_is_no_missing_document() -> None:
    error = answer(404)
    error.response.request.url = "https://account/dbs/a/colls/b"  # type: ignore[union-attr]

    with pytest.raises(Misconfigured):
        async with reading():
            raise error


@pytest.mark.parametrize(
    "error", [ServiceRequestError("refused"), TimeoutError(), ConnectionResetError()], ids=type
)
async def test_no_answer_leaves_a_write_unknown_and_a_read_undone(error: Exception) -> None:
    assert isinstance(weigh(error, Tries()), OutcomeUnknown)
    with pytest.raises(Unavailable):
        async with reading():
            raise error


@pytest.mark.parametrize("is_write", [True, False])
def test_an_identity_without_a_token_waits_for_a_person(is_write: bool) -> None:
    failure = read_failure(ClientAuthenticationError("no token"), is_write=is_write)

    assert classify(failure).failure_class is FailureClass.DESTINATION


@pytest.mark.parametrize(
    ("statuses", "requests", "error"),
    [
        ([429, 429], 2, Unavailable),
        ([503, 403], 2, OutcomeUnknown),
        ([408, 429], 2, OutcomeUnknown),
        ([403], 2, OutcomeUnknown),
        ([503, 400], 2, NotStorable),
    ],
)
def test_a_refusal_after_a_try_without_an_answer_says_nothing(
    statuses: list[int], requests: int, error: type[LockstepError]
) -> None:
    answers = [SimpleNamespace(http_response=answer(status).response) for status in statuses]

    assert isinstance(weigh(answer(statuses[-1]), Tries([object()] * requests, answers)), error)


@pytest.mark.parametrize(
    ("answers", "requests", "error"),
    [
        ([answer(429).response] * 3, 3, Throttled),
        ([not_answered(was_sent=False)] * 2, 2, Unavailable),
        ([not_answered(was_sent=True), answer(403, 3).response], 2, OutcomeUnknown),
        ([answer(403, 3).response], 2, OutcomeUnknown),
        ([], 0, OutcomeUnknown),
    ],
)
def test_when_the_time_of_a_write_is_up_its_tries_say_whether_it_may_have_happened(
    answers: list[Any], requests: int, error: type[LockstepError]
) -> None:
    responses = [SimpleNamespace(http_response=one) for one in answers]

    assert type(weigh(TimeoutError(), Tries([object()] * requests, responses))) is error


def test_when_the_time_of_a_write_is_up_its_error_says_what_its_last_try_met() -> None:
    tries = Tries([object()], [SimpleNamespace(http_response=not_answered(was_sent=True))])

    assert str(tries.explain(TimeoutError())) == "account-east is silent"
    refused = ServiceRequestError("refused")
    assert tries.explain(refused) is refused


# What the SDK, its transport and its connections can raise, but for what has a status.
RAISED = sorted(
    {
        one
        for module in (azure.core.exceptions, azure.cosmos.exceptions, aiohttp.client_exceptions)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Exception)
        if not issubclass(one, CosmosHttpResponseError | CosmosBatchOperationError)
    }
    | {ValueError, RuntimeError, TypeError, KeyError, AttributeError, AssertionError, OSError},
    key=lambda one: one.__name__,
)


@pytest.mark.parametrize("kind", RAISED, ids=lambda one: one.__name__)
async def test_no_exception_of_the_sdk_leaves_the_store_as_it_is(kind: type[Exception]) -> None:
    """Whatever is raised, a write is unknown or refused, and a read is refused."""
    # Each has arguments of its own, of which nothing here depends.
    silent = type(kind.__name__, (kind,), {"__init__": object.__init__, "__str__": object.__repr__})
    error = silent()

    async def fail(*_: object, **_options: object) -> object:
        raise error

    async def fail_to_page(*_: object, **_options: object) -> AsyncIterator[object]:
        raise error
        yield

    container = container_of(fail, fail_to_page)
    with pytest.raises((Unavailable, OutcomeUnknown)):
        await container.write("session", [])
    with pytest.raises(Unavailable):
        await container.read("session", "id")
    with pytest.raises(Unavailable):
        await container.find(Query("SELECT * FROM c", 1))


@pytest.mark.parametrize("way", ["write", "read", "find"])
def test_when_the_store_says_nothing_a_call_ends_after_its_time(way: str) -> None:
    async def wait(*_: object, **_options: object) -> object:
        return await asyncio.Event().wait()

    async def wait_for_page(*_: object, **_options: object) -> AsyncIterator[object]:
        yield await asyncio.Event().wait()

    async def scenario() -> float:
        container = container_of(wait, wait_for_page)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "write": lambda: container.write("session", []),
            "read": lambda: container.read("session", "id"),
            "find": lambda: container.find(Query("SELECT * FROM c", 1)),
        }
        with pytest.raises(OutcomeUnknown if way == "write" else Unavailable):
            await calls[way]()
        return asyncio.get_running_loop().time()

    assert virtual_time.run(scenario()) == CALL_SECONDS


def test_a_search_that_goes_on_answering_is_not_cut_short() -> None:
    async def answer_slowly(*_: object, **_options: object) -> AsyncIterator[dict[str, int]]:
        for number in range(5):
            await asyncio.sleep(CALL_SECONDS - 1)
            yield {"number": number}

    async def scenario() -> list[Any]:
        container = container_of(answer_slowly, answer_slowly)
        return await container.find(Query("SELECT * FROM c", 9))

    assert [one["number"] for one in virtual_time.run(scenario())] == [0, 1, 2, 3, 4]


def container_of(call: Callable[..., Any], pages: Callable[..., Any]) -> CosmosContainer:
    """A container over stand-ins for the SDK's calls."""
    seen = account()
    seen.containers["database", "name"] = SimpleNamespace(  # type: ignore[assignment]
        read_item=call, execute_item_batch=call, query_items=pages
    )
    return CosmosContainer(seen, "database", "name")


def weigh(error: Exception, tries: Tries) -> LockstepError | None:
    """What a write raises for what the SDK raised; None for an answer."""
    failure = tries.weigh(read_failure(error, is_write=True))
    is_answer = classify(failure).failure_class is FailureClass.ANSWER
    return None if is_answer else convert(failure, error)


def account(connection_string: str = "") -> CosmosAccount:
    return CosmosAccount(
        connection_string=connection_string, endpoint=None, client_id=None, call_seconds=10
    )


@pytest.mark.parametrize("text", ["nonsense", "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a"])
async def test_a_connection_string_of_the_store_that_cannot_be_parsed_is_named(text: str) -> None:
    with pytest.raises(Misconfigured):
        await account(text).container("lockstep", "journal")


# What the SDK raises for a send, and what that means.
SENT: list[tuple[Exception, type[LockstepError]]] = [
    (bus.MessageSizeExceededError(), InvalidMessage),
    (bus.MessagingEntityNotFoundError(), Misconfigured),
    (bus.MessagingEntityDisabledError(), Misconfigured),
    (bus.ServiceBusAuthenticationError(), Misconfigured),
    (bus.ServiceBusAuthorizationError(), Misconfigured),
    (bus.ServiceBusQuotaExceededError(), Misconfigured),
    (bus.ServiceBusError("no", condition=b"amqp:not-allowed"), Misconfigured),
    (bus.ServiceBusError("no", condition=b"com.microsoft:argument-error"), Misconfigured),
    (ClientAuthenticationError("no token"), Misconfigured),
    (bus.ServiceBusServerBusyError(), Throttled),
    (bus.OperationTimeoutError(), OutcomeUnknown),
    (bus.ServiceBusConnectionError(), OutcomeUnknown),
    (bus.ServiceBusCommunicationError(), OutcomeUnknown),
    (bus.ServiceBusError("no", condition=b"amqp:internal-error"), OutcomeUnknown),
    (bus.ServiceBusError("no"), OutcomeUnknown),
    (bus.SessionLockLostError(), OutcomeUnknown),
    (TimeoutError(), OutcomeUnknown),
    (ConnectionResetError(), OutcomeUnknown),
    (ValueError("a closed sender"), OutcomeUnknown),
]


@pytest.mark.parametrize(("raised", "error"), SENT, ids=lambda one: getattr(one, "__name__", None))
async def test_a_failed_send_is_one_of_the_engines_errors(
    raised: Exception, error: type[LockstepError]
) -> None:
    assert type(make_error(Failure(BUS, code_of(raised)), "")) is error


def test_every_exception_that_the_sdk_has_for_a_condition_was_looked_at() -> None:
    known = {type(raised) for raised, _ in SENT}
    # These answer a receiver, or whoever creates queues: no send ends so.
    others = {
        bus.MessageLockLostError,
        bus.MessageNotFoundError,
        bus.MessagingEntityAlreadyExistsError,
        bus.SessionCannotBeLockedError,
    }

    assert set(_ERROR_CODE_TO_ERROR_MAPPING.values()) <= known | others


@pytest.mark.parametrize("text", ["nonsense", "Endpoint=sb://a;EntityPath=other"])
async def test_a_connection_string_of_the_bus_that_cannot_be_parsed_is_named(text: str) -> None:
    namespace = Namespace(connection_string=text, endpoint=None, client_id=None)

    with pytest.raises(Misconfigured):
        await ServiceBus({"east": namespace}).send("east", "queue", ())


@pytest.mark.parametrize("rule", FAILURE_RULES, ids=lambda rule: rule.why)
def test_every_rule_of_the_table_decides_something(rule: object) -> None:
    codes = [*range(400, 600), None, *(code for one in FAILURE_RULES for code in one.codes)]
    subs = [None, *{one.sub_status for one in FAILURE_RULES}]
    failures = [
        Failure(service, code, sub, is_write)
        for service, code, sub, is_write in product((STORE, BUS), codes, subs, (True, False))
    ]

    assert any(classify(failure) is rule for failure in failures)


@pytest.mark.parametrize(
    ("fault", "stored", "sent"),
    [
        (CallFault.REFUSED, Unavailable, Unavailable),
        (CallFault.LOST, OutcomeUnknown, OutcomeUnknown),
        (CallFault.UNANSWERED, OutcomeUnknown, OutcomeUnknown),
        (CallFault.FORBIDDEN, Misconfigured, Misconfigured),
        (CallFault.UNACCEPTABLE, NotStorable, InvalidMessage),
    ],
)
def test_the_twin_fails_as_the_services_do(
    fault: CallFault, stored: type[LockstepError], sent: type[LockstepError]
) -> None:
    plan = FaultPlan()
    plan.plan("append", fault)
    plan.plan("send.east", fault)

    with pytest.raises(stored), plan.calling("append"):
        pass
    with pytest.raises(sent), plan.calling("send.east"):
        pass

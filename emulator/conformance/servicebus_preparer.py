"""Loaded by pytest before the tests of azure-servicebus: their preparers, for local namespaces.

The decorators of a test say what it needs. Here the one for the namespace, which stands above the
others, starts a namespace that holds just this, on a free port, and stops it when the test has
ended. Tests of the administration clients get an empty one. Microsoft's package of test utilities
is in no index, so the names that tests take from it stand here, too.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from inspect import Parameter, iscoroutine, iscoroutinefunction, signature
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.servicebus import ServiceBusClient
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio._base_handler_async import (
    ServiceBusSharedKeyCredential as AsyncServiceBusSharedKeyCredential,
)
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AsyncServiceBusAdministrationClient,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from local.counters import Counters
from local.faults import Faults
from local.servicebus.config import parse_namespace
from local.servicebus.nodes.authorization import KEY, KEY_NAME
from local.servicebus.server import Namespace

CONNECTION = "{connection string}"  # put in when the namespace runs
RULE = "servicebus_authorization_rule"
QUEUE_RULE = "servicebus_queue_authorization_rule"
# A test and its asynchronous twin wait for another message of a session exactly as long as its lock
# lasts. The lock begins first, so on a busy machine it ends first, and the wait with an error.
LOCK_WITHOUT_RACE = "PT15S"
RACING_TEST = "session_by_queue_client_conn_str_receive_handler_receiveanddelete["

Test = Callable[..., Any]
# What a decorator adds: to the declaration of the namespace, and to the arguments of the test.
Need = Callable[[dict[str, Any], dict[str, Any]], None]


class AccessRights(StrEnum):
    """The rights of a key, as the tests name them."""

    manage = "Manage"
    send = "Send"
    listen = "Listen"


class RecordedTestCase:
    """The base of the tests' classes."""

    @staticmethod
    def await_prepared_test(test: Test) -> Test:
        """Run an asynchronous test whose preparers are not asynchronous."""

        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            asyncio.run(test(*args, **kwargs))

        return run


def prepare_namespace(*_: Any, **_options: Any) -> Callable[[Test], Test]:
    """Run a test with a namespace of what the decorators below say."""

    def decorate(test: Test) -> Test:
        if iscoroutinefunction(test):

            @wraps(test)
            async def run_async(*args: Any, **kwargs: Any) -> None:
                with start_namespace(test) as arguments:
                    await test(*args, **arguments, **kwargs)

            return run_async

        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            with start_namespace(test) as arguments:
                test(*args, **arguments, **kwargs)

        return run

    return decorate


def prepare_administration(*_: Any, **_options: Any) -> Callable[[Test], Test]:
    """Run a test of the administration clients with a namespace that holds nothing."""

    def decorate(test: Test) -> Test:
        takes = signature(test).parameters
        takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in takes.values())

        def run(case: Any) -> None:  # pytest would look for fixtures of the names in `offered`
            with start_namespace(test) as arguments:
                connection = arguments["servicebus_namespace_connection_string"]
                offered = {
                    "servicebus_fully_qualified_namespace": arguments["servicebus_namespace"].name,
                    "servicebus_connection_str": connection,
                    "servicebus_sas_policy": KEY_NAME,
                    "servicebus_sas_key": KEY,
                }
                taken = offered if takes_all else offered.keys() & takes.keys()
                running = test(case, **{name: offered[name] for name in taken})
                if iscoroutine(running):
                    asyncio.run(running)

        return run

    return decorate


@contextmanager
def start_namespace(test: Test) -> Iterator[dict[str, Any]]:
    """Give the arguments of a test while the namespace runs that it needs."""
    declaration: dict[str, Any] = {"Name": "conformance", "Queues": [], "Topics": []}
    arguments: dict[str, Any] = {}
    for need in test.__dict__.get("needs", ()):
        need(declaration, arguments)
    if RACING_TEST in os.environ["PYTEST_CURRENT_TEST"]:
        declaration["Queues"][0]["Properties"]["LockDuration"] = LOCK_WITHOUT_RACE
    namespace = Namespace(
        parse_namespace(declaration), port=0, faults=Faults(), counters=Counters()
    )
    namespace.start()
    try:
        connection = namespace.connection_string
        yield {
            "servicebus_namespace": SimpleNamespace(name=f"{namespace.host}:{namespace.port}"),
            "servicebus_namespace_connection_string": connection,
            "servicebus_namespace_key_name": KEY_NAME,
            "servicebus_namespace_primary_key": KEY,
            **{
                name: one.replace(CONNECTION, connection) if isinstance(one, str) else one
                for name, one in arguments.items()
            },
        }
    finally:
        namespace.stop()


def require(need: Need) -> Callable[[Test], Test]:
    """A decorator that notes what a test needs, before what the decorators below it noted."""

    def decorate(test: Test) -> Test:
        test.__dict__["needs"] = [need, *test.__dict__.get("needs", ())]
        return test

    return decorate


def prepare_queue(
    name_prefix: str = "",
    parameter_name: str = "servicebus_queue",
    requires_duplicate_detection: bool = False,
    dead_lettering_on_message_expiration: bool = False,
    requires_session: bool = False,
    enable_partitioning: bool = False,
    lock_duration: str = "PT30S",
    **_options: Any,
) -> Callable[[Test], Test]:
    def need(declaration: dict[str, Any], arguments: dict[str, Any]) -> None:
        name = f"{name_prefix}-{parameter_name}"
        properties: dict[str, Any] = {
            "RequiresDuplicateDetection": requires_duplicate_detection,
            "DeadLetteringOnMessageExpiration": dead_lettering_on_message_expiration,
            "RequiresSession": requires_session,
            "LockDuration": lock_duration,
        }
        if enable_partitioning:
            properties["EnablePartitioning"] = True
        declaration["Queues"].append({"Name": name, "Properties": properties})
        arguments[parameter_name] = SimpleNamespace(name=name)

    return require(need)


def prepare_topic(
    name_prefix: str = "", parameter_name: str = "servicebus_topic", **_options: Any
) -> Callable[[Test], Test]:
    def need(declaration: dict[str, Any], arguments: dict[str, Any]) -> None:
        name = f"{name_prefix}-{parameter_name}"
        declaration["Topics"].append({"Name": name, "Subscriptions": []})
        arguments[parameter_name] = SimpleNamespace(name=name)

    return require(need)


def prepare_subscription(
    name_prefix: str = "",
    parameter_name: str = "servicebus_subscription",
    requires_session: bool = False,
    lock_duration: str = "PT60S",
    **_options: Any,
) -> Callable[[Test], Test]:
    def need(declaration: dict[str, Any], arguments: dict[str, Any]) -> None:
        name = f"{name_prefix}-{parameter_name}"
        properties = {"RequiresSession": requires_session, "LockDuration": lock_duration}
        subscription = {"Name": name, "Properties": properties}
        declaration["Topics"][-1]["Subscriptions"].append(subscription)
        arguments[parameter_name] = SimpleNamespace(name=name)

    return require(need)


def prepare_rule(*_: Any, parameter_name: str = RULE, **_options: Any) -> Callable[[Test], Test]:
    """A key of the namespace, which is always the one with all rights."""
    name = f"{parameter_name}_connection_string"
    return require(lambda _, arguments: arguments.update({name: CONNECTION}))


def prepare_queue_rule(*_: Any, **_options: Any) -> Callable[[Test], Test]:
    """A key of the queue that was declared last."""

    def need(declaration: dict[str, Any], arguments: dict[str, Any]) -> None:
        entity = declaration["Queues"][-1]["Name"]
        arguments[f"{QUEUE_RULE}_connection_string"] = f"{CONNECTION};EntityPath={entity}"

    return require(need)


def prepare_nothing(*_: Any, **_options: Any) -> Callable[[Test], Test]:
    return lambda test: test


def get_credential(**options: Any) -> Any:
    """The one key that every namespace has."""
    if options.get("is_async"):
        return AsyncServiceBusSharedKeyCredential(KEY_NAME, KEY)
    return ServiceBusSharedKeyCredential(KEY_NAME, KEY)


class PlainTransport(RequestsTransport):  # type: ignore[misc]
    """A transport without TLS, which the administration clients cannot be told to use."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


class AsyncPlainTransport(AioHttpTransport):  # type: ignore[misc]
    """A transport without TLS for the asynchronous client."""

    async def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


# How clients of a kind go without TLS, which local namespaces do not speak.
WITHOUT_TLS: dict[Any, Callable[[], dict[str, Any]]] = {
    ServiceBusClient: lambda: {"use_tls": False},
    AsyncServiceBusClient: lambda: {"use_tls": False},
    ServiceBusAdministrationClient: lambda: {"transport": PlainTransport()},
    AsyncServiceBusAdministrationClient: lambda: {"transport": AsyncPlainTransport()},
}


def connect_without_tls(client: Any) -> None:
    """Have all clients of a kind go without TLS."""
    make = client.__init__

    @wraps(make)
    def make_without_tls(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **(kwargs | WITHOUT_TLS[client]()))

    client.__init__ = make_without_tls


def add_module(name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


@pytest.hookimpl(tryfirst=True)  # before the suite's own conftest.py
def pytest_load_initial_conftests() -> None:
    """Put in place what the tests import."""
    for client in WITHOUT_TLS:
        connect_without_tls(client)
    preparers = {
        "ServiceBusNamespacePreparer": prepare_namespace,
        "ServiceBusResourceGroupPreparer": prepare_nothing,
        "ServiceBusQueuePreparer": prepare_queue,
        "ServiceBusTopicPreparer": prepare_topic,
        "ServiceBusSubscriptionPreparer": prepare_subscription,
        "ServiceBusNamespaceAuthorizationRulePreparer": prepare_rule,
        "ServiceBusQueueAuthorizationRulePreparer": prepare_queue_rule,
    }
    cached = {f"Cached{name}": one for name, one in preparers.items()}
    add_module("servicebus_preparer", SERVICEBUS_ENDPOINT_SUFFIX="", **preparers, **cached)
    add_module(
        "devtools_testutils",
        AzureMgmtRecordedTestCase=RecordedTestCase,
        AzureRecordedTestCase=RecordedTestCase,
        CachedResourceGroupPreparer=prepare_nothing,
        RandomNameResourceGroupPreparer=prepare_nothing,
        PowerShellPreparer=prepare_administration,
        get_credential=get_credential,
        recorded_by_proxy=lambda test: test,
        set_custom_default_matcher=prepare_nothing,
    )
    add_module("devtools_testutils.aio", recorded_by_proxy_async=lambda test: test)
    add_module("azure.common", AzureHttpError=Exception, AzureConflictHttpError=Exception)
    for name in ("azure.mgmt", "azure.mgmt.servicebus"):
        add_module(name)
    add_module("azure.mgmt.servicebus.models", AccessRights=AccessRights)

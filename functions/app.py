"""A function app from handlers: they are found in a package, and every trigger is registered."""

import logging
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import azure.functions as func

from functions.http import asyncapi, error_queue, ingest, openapi, operate, sagas, watch
from functions.page import decisions, page, regions
from functions.page import error_queue as page_error_queue
from functions.page.view import link_docs
from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from functions.triggers.sagas import build_saga_blueprint
from shared.domain.handler import Handlers
from shared.engine.build import Services

HTTP_MODULES = (
    *(ingest, operate, watch, error_queue, openapi, asyncapi, sagas),
    *(page, regions, decisions, page_error_queue),
)


def find_handlers(package: str, settings: Any = None) -> Handlers:
    """The handlers of every module of a package whose name does not begin with an underscore.

    A module has `handlers`, or, where they need a client, a function `connect_handlers` that makes
    them from the app's settings. Raises ValueError, which names the module, where it has neither,
    and for a message type that two modules handle; an import that fails is raised as it is.
    """
    whole = Handlers()
    for found in sorted(iter_modules(import_module(package).__path__), key=lambda one: one.name):
        if found.name.startswith("_"):
            continue
        module = import_module(f"{package}.{found.name}")
        connect = getattr(module, "connect_handlers", None)
        own = connect(settings) if connect else getattr(module, "handlers", None)
        if not isinstance(own, Handlers):
            raise ValueError(
                f"{module.__name__} has no `handlers`, and no `connect_handlers` that makes them:"
                " begin the name of a module that handles nothing with an underscore"
            )
        try:
            for handler in own.by_type.values():
                whole.add(handler)
        except ValueError as error:
            raise ValueError(f"{module.__name__}: {error}") from None
    return whole


def build_app(services: Services) -> func.FunctionApp:
    """The app with every trigger: queues, change feed, timers, HTTP, the page and sagas.

    The Azure SDKs log every request with its headers at level information, which is paid for by
    the gigabyte. They are held at warning here, unless debugging is asked for or their level is
    already set. That of Cosmos DB warns in every call, each second, while a region is lost, which
    the adapter says once; so it is held at error.
    """
    sdks = logging.getLogger("azure")
    if sdks.level == logging.NOTSET and not sdks.isEnabledFor(logging.DEBUG):
        sdks.setLevel(logging.WARNING)
        logging.getLogger("azure.cosmos").setLevel(logging.ERROR)
    link_docs(services.docs_url)
    app = func.FunctionApp()
    for build_blueprint in (
        build_receive_blueprint,
        build_recovery_blueprint,
        build_saga_blueprint,
        *(module.routes.build for module in HTTP_MODULES),
    ):
        app.register_functions(build_blueprint(services))
    return app

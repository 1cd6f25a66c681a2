"""A function app from handlers: every trigger is registered."""

import logging

import azure.functions as func

from functions.http import asyncapi, bulk, error_queue, find, ingest, openapi, operate, sagas, watch
from functions.page import decisions, overview, page, regions
from functions.page import error_queue as page_error_queue
from functions.page import find as page_find
from functions.page.view import adapt_pages
from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from functions.triggers.sagas import build_saga_blueprint
from shared.domain.saga.record import kinds_of
from shared.engine.build import Services

HTTP_MODULES = (
    *(ingest, operate, bulk, find, watch, error_queue, openapi, asyncapi),
    *(overview, page, page_find, regions, decisions, page_error_queue),
)
# Of a function that has one, the host needs the extension of Durable Functions.
DURABLE_BINDINGS = frozenset(
    {"orchestrationTrigger", "activityTrigger", "entityTrigger", "durableClient"}
)


def build_app(services: Services) -> func.FunctionApp:
    """The app with every trigger: queues, change feed, timers, HTTP, the page and sagas.

    Where no handler declares a kind of saga, nothing of sagas is in it: no function needs Durable
    Functions, and the host loads none of it.

    The Azure SDKs log every request with its headers at level information, which is paid for by
    the gigabyte. They are held at warning here, unless debugging is asked for or their level is
    already set. That of Cosmos DB warns in every call, each second, while a region is lost, which
    the adapter says once; so it is held at error.
    """
    sdks = logging.getLogger("azure")
    if sdks.level == logging.NOTSET and not sdks.isEnabledFor(logging.DEBUG):
        sdks.setLevel(logging.WARNING)
        logging.getLogger("azure.cosmos").setLevel(logging.ERROR)
    has_sagas = bool(kinds_of(services.handlers))
    adapt_pages(services.docs_url, has_sagas=has_sagas)
    app = func.FunctionApp()
    of_sagas = (build_saga_blueprint, sagas.routes.build, page.saga_routes.build)
    for build_blueprint in (
        build_receive_blueprint,
        build_recovery_blueprint,
        *(module.routes.build for module in HTTP_MODULES),
        *(of_sagas if has_sagas else ()),
    ):
        app.register_functions(build_blueprint(services))
    return app

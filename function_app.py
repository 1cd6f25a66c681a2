"""Settings to services to blueprints; nothing else."""

import os

import azure.functions as func

from functions import ingest, operate, receive, rescue, sagas, sagas_http
from functions.handlers import orders, shooting_range, tracking
from shared.domain.handling import Handlers
from shared.settings import Settings
from shared.wiring import connect

handlers = Handlers.joined([tracking.handlers, shooting_range.handlers, orders.handlers])
services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for trigger in (receive, rescue, ingest, operate, sagas, sagas_http):
    app.register_functions(trigger.blueprint(services))

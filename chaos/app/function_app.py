"""The product's app, composed as its own `function_app.py` is, with handlers that leave traces."""

import os

import azure.functions as func

from chaos.app.handlers import handlers
from functions import receive, rescue
from shared.settings import Settings
from shared.wiring import connect

services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for trigger in (receive, rescue):
    app.register_functions(trigger.blueprint(services))

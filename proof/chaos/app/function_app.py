"""The product's app, composed as its own `function_app.py` is, with handlers that leave traces."""

import os

import azure.functions as func

from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from proof.chaos.app.handlers import handlers
from shared.settings import Settings
from shared.wiring import connect

services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for build_blueprint in (build_receive_blueprint, build_recovery_blueprint):
    app.register_functions(build_blueprint(services))

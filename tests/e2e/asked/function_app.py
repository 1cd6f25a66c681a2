"""The product's triggers and HTTP with diaries, whose every answer is all that is in them."""

import os

import azure.functions as func

from functions.http import ingest, operate, watch
from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from proof.simulation.work.diaries import business
from shared.settings import Settings
from shared.wiring import connect

# After its start a worker runs what is asked under claims; both are to be seen within a minute.
CAREFUL_SECONDS = 5.0

services = connect(Settings.read(os.environ), business())
services.worker.careful_until = services.worker.clock.now() + CAREFUL_SECONDS

app = func.FunctionApp()
for build_blueprint in (
    build_receive_blueprint,
    build_recovery_blueprint,
    ingest.routes.build,
    operate.routes.build,
    watch.routes.build,
):
    app.register_functions(build_blueprint(services))

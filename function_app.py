"""Settings to services to blueprints; nothing else."""

import os

import azure.functions as func

from functions.handlers import notices, orders, shooting_range, tracking
from functions.ingest import build_ingest_blueprint
from functions.operate import build_operate_blueprint
from functions.page import build_page_blueprint
from functions.receive import build_receive_blueprint
from functions.rescue import build_recovery_blueprint
from functions.sagas import build_saga_blueprint
from functions.sagas_http import build_saga_routes
from shared.domain.handler import Handlers
from shared.settings import Settings
from shared.wiring import connect

settings = Settings.read(os.environ)
handlers = Handlers.joined(
    [
        tracking.handlers,
        shooting_range.handlers,
        orders.handlers,
        notices.build_handlers(notices.HttpNoticeService(settings.notice_url)),
    ]
)
services = connect(settings, handlers)

app = func.FunctionApp()
for build_blueprint in (
    build_receive_blueprint,
    build_recovery_blueprint,
    build_ingest_blueprint,
    build_operate_blueprint,
    build_page_blueprint,
    build_saga_blueprint,
    build_saga_routes,
):
    app.register_functions(build_blueprint(services))

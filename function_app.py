"""Settings to services to triggers; nothing else. Handlers are found in functions/handlers."""

import os

from functions.app import build_app, find_handlers
from shared.settings import Settings
from shared.wiring import connect

settings = Settings.read(os.environ)
handlers = find_handlers("functions.handlers", settings)
app = build_app(connect(settings, handlers))

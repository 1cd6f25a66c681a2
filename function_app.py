"""Settings to services to triggers; nothing else. Handlers are found in functions/handlers."""

import os

from lockstep import Settings, build_app, connect, find_handlers

settings = Settings.read(os.environ)
handlers = find_handlers("functions.handlers", settings)
app = build_app(connect(settings, handlers))

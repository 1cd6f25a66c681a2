"""The product's triggers with one handler that calls the outside, slowly, and leaves a line."""

import asyncio
import os
import time

import azure.functions as func

from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from lockstep import Context, Handlers, Kind, NoState
from proof.bench.deaths.trace import TRACE_SETTING, SlowCall
from shared.settings import Settings
from shared.wiring import connect

CALL_SECONDS = 0.2

handlers = Handlers()


# Its owner may be lost any number of times: that says nothing against the message.
@handlers.register("slow", state=NoState, body=SlowCall, kind=Kind.EFFECTFUL, attempts=1_000)
async def call(_: NoState, body: SlowCall, context: Context) -> NoState:
    """Take a while, as a call to the outside does, and say when it was over."""
    await asyncio.sleep(CALL_SECONDS)
    line = f"{time.time()} {context.message.session} {body.number}\n"
    file = os.open(os.environ[TRACE_SETTING], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    return NoState()


services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for build_blueprint in (build_receive_blueprint, build_recovery_blueprint):
    app.register_functions(build_blueprint(services))

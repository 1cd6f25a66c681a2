"""The product's triggers with one pure handler, which ends its worker where a message says so."""

import os
from pathlib import Path

import azure.functions as func
from pydantic import BaseModel

from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from lockstep import Context, Handlers
from shared.settings import Settings
from shared.wiring import connect

handlers = Handlers()


class Numbers(BaseModel):
    """The numbers that a session was given."""

    seen: list[int] = []


class Next(BaseModel):
    """The next number; a deadly one ends the worker."""

    number: int
    is_deadly: bool = False


@handlers.register("next", state=Numbers, body=Next)
def add(numbers: Numbers, body: Next, context: Context) -> Numbers:
    """Keep the number, or leave a line and end the process as a crash in native code does."""
    if body.is_deadly:
        with Path(os.environ["DEATHS"]).open("a", encoding="utf-8") as file:
            file.write(f"{os.environ['LOCKSTEP_REGION']}\n")
        os._exit(3)
    return Numbers(seen=[*numbers.seen, body.number])


services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for build_blueprint in (build_receive_blueprint, build_recovery_blueprint):
    app.register_functions(build_blueprint(services))

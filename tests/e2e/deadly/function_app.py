"""The product's triggers with handlers that do what a message says, at their worst."""

import asyncio
import os
from pathlib import Path

import azure.functions as func
from pydantic import BaseModel

from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from lockstep import Context, Handlers, Kind
from shared.settings import Settings
from shared.wiring import connect
from tests.user_code import BY_NAME

handlers = Handlers()


class Numbers(BaseModel):
    """The numbers that a session was given."""

    seen: list[int] = []


class Next(BaseModel):
    """The next number; what the handler does before, by its name in tests/user_code.py."""

    number: int
    way: str | None = None


def do_worst(body: Next) -> None:
    """Leave a line, and do what the message says."""
    if body.way is not None:
        with Path(os.environ["RUNS"]).open("a", encoding="utf-8") as file:
            file.write(f"{os.environ['LOCKSTEP_REGION']} {body.way}\n")
        BY_NAME[body.way].do()


@handlers.register("next", state=Numbers, body=Next)
def add(numbers: Numbers, body: Next, _: Context) -> Numbers:
    """Keep the number."""
    do_worst(body)
    return Numbers(seen=[*numbers.seen, body.number])


@handlers.register("call", state=Numbers, body=Next, kind=Kind.EFFECTFUL, attempts=1)
async def call(numbers: Numbers, body: Next, _: Context) -> Numbers:
    """Keep the number, as a handler that calls the outside."""
    await asyncio.sleep(0)
    do_worst(body)
    return Numbers(seen=[*numbers.seen, body.number])


services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for build_blueprint in (build_receive_blueprint, build_recovery_blueprint):
    app.register_functions(build_blueprint(services))

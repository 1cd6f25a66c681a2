"""The product's triggers and HTTP ingest with three handlers, which differ in what they keep."""

import os

import azure.functions as func
from pydantic import BaseModel

from functions.http import ingest
from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from shared.domain.handler import Context, Handled, Handlers, Output
from shared.settings import Settings
from shared.wiring import connect

LARGE_BYTES = 100_000

handlers = Handlers()


class Occurrence(BaseModel):
    """A message that says only that it came."""


class Tally(BaseModel):
    """The number of messages that a session has had."""

    taken: int = 0


class LargeTally(BaseModel):
    """The same, and much besides."""

    taken: int = 0
    text: str = ""


@handlers.register("count.silently", state=Tally, body=Occurrence, sessions="silently-*")
def count_silently(tally: Tally, _: Occurrence, __: Context) -> Tally:
    """Count, and tell nobody."""
    return Tally(taken=tally.taken + 1)


@handlers.register("count.aloud", state=Tally, body=Occurrence, sessions="aloud-*")
def count_aloud(tally: Tally, _: Occurrence, __: Context) -> Handled[Tally]:
    """Count, and say how many there were."""
    counted = Tally(taken=tally.taken + 1)
    return Handled(counted, (Output("count.counted", counted),))


@handlers.register("count.at_length", state=LargeTally, body=Occurrence, sessions="at_length-*")
def count_at_length(tally: LargeTally, _: Occurrence, __: Context) -> Handled[LargeTally]:
    """Count, say how many there were, and keep 100 kB."""
    counted = LargeTally(taken=tally.taken + 1, text="x" * LARGE_BYTES)
    return Handled(counted, (Output("count.counted", Tally(taken=counted.taken)),))


services = connect(Settings.read(os.environ), handlers)
# As one that has run for a while: after its start a worker is careful with what it is asked.
services.worker.careful_until = 0.0

app = func.FunctionApp()
for build_blueprint in (
    build_receive_blueprint,
    build_recovery_blueprint,
    ingest.routes.build,
):
    app.register_functions(build_blueprint(services))

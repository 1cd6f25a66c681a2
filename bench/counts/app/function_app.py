"""The product's triggers and HTTP ingest with three handlers, which differ in what they keep."""

import os

import azure.functions as func
from pydantic import BaseModel

from functions.ingest import build_ingest_blueprint
from functions.receive import build_receive_blueprint
from functions.rescue import build_recovery_blueprint
from shared.domain.handler import Context, Handled, Handlers, Output
from shared.settings import Settings
from shared.wiring import connect

LARGE_BYTES = 100_000

handlers = Handlers()


class Order(BaseModel):
    """A message that says nothing but that it came."""


class Count(BaseModel):
    """How many messages a session has had."""

    orders: int = 0


class LargeCount(BaseModel):
    """The same, and much besides."""

    orders: int = 0
    text: str = ""


@handlers.register("count.silently", state=Count, body=Order, sessions="silently-*")
def count_silently(count: Count, _: Order, __: Context) -> Count:
    """Count, and tell nobody."""
    return Count(orders=count.orders + 1)


@handlers.register("count.aloud", state=Count, body=Order, sessions="aloud-*")
def count_aloud(count: Count, _: Order, __: Context) -> Handled[Count]:
    """Count, and say how many there were."""
    counted = Count(orders=count.orders + 1)
    return Handled(counted, (Output("count.counted", counted),))


@handlers.register("count.at_length", state=LargeCount, body=Order, sessions="at_length-*")
def count_at_length(count: LargeCount, _: Order, __: Context) -> Handled[LargeCount]:
    """Count, say how many there were, and keep 100 kB."""
    counted = LargeCount(orders=count.orders + 1, text="x" * LARGE_BYTES)
    return Handled(counted, (Output("count.counted", Count(orders=counted.orders)),))


services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for build_blueprint in (
    build_receive_blueprint,
    build_recovery_blueprint,
    build_ingest_blueprint,
):
    app.register_functions(build_blueprint(services))

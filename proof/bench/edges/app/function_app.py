"""The product's triggers with one handler, whose every message has one output."""

import os

import azure.functions as func
from pydantic import BaseModel

from functions.triggers.receive import build_receive_blueprint
from functions.triggers.recover import build_recovery_blueprint
from shared.domain.handler import Context, Handled, Handlers, Output
from shared.settings import Settings
from shared.wiring import connect

handlers = Handlers()


class Step(BaseModel):
    """A message that says nothing but that it came."""


class Count(BaseModel):
    """The number of steps that a session has taken."""

    steps: int = 0


@handlers.register("edge.step", state=Count, body=Step)
def take_step(count: Count, _: Step, __: Context) -> Handled[Count]:
    """Count the step, and say how many there were."""
    taken = Count(steps=count.steps + 1)
    return Handled(taken, (Output("edge.taken", taken),))


services = connect(Settings.read(os.environ), handlers)

app = func.FunctionApp()
for build_blueprint in (build_receive_blueprint, build_recovery_blueprint):
    app.register_functions(build_blueprint(services))

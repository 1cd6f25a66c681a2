"""The tracking business with every effect made visible: one output for each, and a line for each
run of a handler that calls the outside.

An output says which message was applied, at which place of its session, and the digest chain of
everything before it, so a reader of the outputs needs nothing of the journal to check them.
"""

import asyncio
import json
import os
import time

from pydantic import BaseModel

from functions.handlers import tracking
from proof.chaos import messages
from shared.domain.handler import Context, Handled, Handlers, Kind, NoState, OnFault, Output

# Long enough for a kill to come between an outside effect and its commit.
OUTSIDE_SECONDS = 0.05

handlers = Handlers()


class FollowedAircraft(BaseModel):
    """An aircraft, how many of its messages were applied, and their chain."""

    aircraft: tracking.Aircraft = tracking.Aircraft()
    place: int = 0
    chain: str = messages.CHAIN_START


class AppliedEffect(BaseModel):
    """The output of an applied message; it says nothing that a second run would say otherwise."""

    session: str
    place: int
    sequence: int
    id: str
    digest: str
    chain: str


@handlers.register(messages.PURE, state=FollowedAircraft, body=tracking.FlightStatus)
def follow(
    followed: FollowedAircraft, event: tracking.FlightStatus, context: Context
) -> Handled[FollowedAircraft]:
    message = context.message
    content = messages.hash_content(message.type, message.body)
    linked = messages.extend_chain(followed.chain, message.id, content)
    effect = AppliedEffect(
        session=message.session,
        place=followed.place,
        sequence=message.number.sequence if message.number else -1,
        id=message.id,
        digest=content,
        chain=linked,
    )
    aircraft = tracking.track(followed.aircraft, event, context)
    state = FollowedAircraft(aircraft=aircraft, place=followed.place + 1, chain=linked)
    return Handled(state, (Output(messages.APPLIED, effect, to=messages.EFFECTS_QUEUE),))


@handlers.register(
    messages.EFFECTFUL,
    state=FollowedAircraft,
    body=tracking.FlightStatus,
    kind=Kind.EFFECTFUL,
    attempts=1_000,
)
async def announce(
    followed: FollowedAircraft, event: tracking.FlightStatus, context: Context
) -> Handled[FollowedAircraft]:
    """Act on the outside, under a key that every run has, and then do the same as `follow`.

    Its owner may be lost any number of times: under these faults that says nothing against it.
    """
    record_run(context)
    await asyncio.sleep(OUTSIDE_SECONDS)
    return follow(followed, event, context)


@handlers.register(messages.FAILING, state=NoState, body=BaseModel, on_fault=OnFault.SKIP)
def fail(_: NoState, __: BaseModel, context: Context) -> NoState:
    """Fail, always; the session goes on."""
    raise ValueError(f"message {context.message.id} was sent to fail")


def record_run(context: Context) -> None:
    """Append a line that says this run takes place; one write, so no two lines mix."""
    run = {
        "at": time.time(),
        "session": context.message.session,
        "id": context.message.id,
        "key": context.new_id(),
        "process": os.getpid(),
    }
    file = os.open(os.environ[messages.RUNS_SETTING], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, (json.dumps(run) + "\n").encode())
    finally:
        os.close(file)

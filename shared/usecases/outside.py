"""Run a handler that may call the outside: it may wait, so others go on meanwhile."""

import asyncio
import inspect

from shared.domain.handling import Context, Handler
from shared.domain.message import Message
from shared.domain.running import Before, Result, arguments, result_of


async def run_outside(handler: Handler, before: Before, message: Message) -> Result:
    """Run a handler once; one that is not a coroutine gets a thread of its own.

    Raises what the handler raises, and InvalidBody.
    """
    context = Context(message, before.captured)
    state, body = arguments(handler, before, message)
    if inspect.iscoroutinefunction(handler.handle):
        answer = await handler.handle(state, body, context)
    else:
        answer = await asyncio.to_thread(handler.handle, state, body, context)
        if inspect.isawaitable(answer):
            answer = await answer
    return result_of(answer, before, message, context)

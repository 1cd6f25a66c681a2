"""Messages of idempotent handlers without a number: they go through without a journal."""

from shared.domain.handler import HandlerInput
from shared.domain.message import Message
from shared.domain.outbox import Outbox
from shared.engine.dispatch.dispatch import Dispatcher
from shared.engine.handle.handle import HandlerRunner, describe_error


async def pass_through(
    runner: HandlerRunner, dispatcher: Dispatcher, message: Message
) -> str | None:
    """Run an idempotent handler without a journal; the answer is why it failed, or None.

    Outputs are sent before the message is settled, and may be sent again with it. Raises
    OutcomeUnknown when no region surely has them.
    """
    outbox, reason = None, None
    try:
        handler = runner.handlers.of(message.type, message.session)
        result = await runner.run_outside(handler, HandlerInput(), message)
        if result.batches:
            outbox = Outbox(result.batches, runner.regions)
    except Exception as error:
        # There is no entry that could keep the message, so the error queue gets it whole.
        reason = describe_error(error)
        outbox = runner.address_fault(message, reason)
    if outbox is not None:
        await dispatcher.send_unjournaled(message.session, outbox)
    return reason

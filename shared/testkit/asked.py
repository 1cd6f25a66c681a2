"""Ask handlers in memory what an app would answer over HTTP, in both regions."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.domain.producer import HTTP_SOURCE
from shared.engine.build import Services
from shared.engine.consume.outcomes import Answered, Failed, Reply
from shared.testkit.given import Found, Given, as_sent, in_words
from shared.testkit.regions import REGIONS, TwoRegions


def asked(handlers: Handlers, messages: Sequence[Given]) -> list[Answered | Failed]:
    """The replies to messages that are asked one after another.

    An Answered has `answer`, `position` and `version`; a Failed has the `reason` of a fault, and
    says whether it `halts` its session. Each is asked of both regions, by turns the first. Raises
    Found where the second is told something else, and where a message waits behind a fault;
    NotRecorded for a type whose handler is idempotent.
    """
    return asyncio.run(ask_regions(TwoRegions(handlers), messages))


async def ask_regions(regions: TwoRegions, messages: Sequence[Given]) -> list[Answered | Failed]:
    replies: list[Answered | Failed] = []
    for place, sent in enumerate(as_sent(messages)):
        message = replace(sent, number=None, source=HTTP_SOURCE)
        first, second = [
            await regions.attempt(region, partial(ask_worker, message))
            for region in (REGIONS if place % 2 == 0 else REGIONS[::-1])
        ]
        if first != second:
            raise Found(f"{in_words(message)} is answered {first}, and then {second}")
        if not isinstance(first, Answered | Failed):
            raise Found(f"{in_words(message)} is not answered: {first}")
        replies.append(first)
        await regions.follow()
    return replies


async def ask_worker(message: Message, worker: Services) -> Reply:
    return await worker.consumer.ask(message)

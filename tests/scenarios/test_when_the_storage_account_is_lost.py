"""The storage account of a region refuses or is silent: health names it, and work goes on."""

import asyncio
import json

from functions.http.operate import report_health, show_status
from functions.triggers.receive import receive_message
from proof.simulation.world import virtual_time
from shared.domain.errors import Unavailable
from shared.engine.operate.missing_places import LOOK_AGAIN_SECONDS, LOOK_SECONDS_MAX
from tests.asking import ask
from tests.deliveries import delivery_of
from tests.loop_clock import in_virtual_time
from tests.world import World, message

PLACE = "storage account of this region"


class Account:
    """A storage account that answers, refuses or is silent."""

    def __init__(self) -> None:
        self.does = "answer"

    async def look(self) -> None:
        if self.does == "refuse":
            raise Unavailable("it refuses: 403 AuthorizationFailure")
        if self.does == "say nothing":
            await asyncio.sleep(86_400)


async def ask_health(world: World) -> tuple[int, dict[str, str]]:
    """Health as a probe asks for it: what is asked for now is known at the next time."""
    await asyncio.sleep(LOOK_AGAIN_SECONDS)
    await report_health(world.east, ask(method="GET"))
    await asyncio.sleep(LOOK_SECONDS_MAX)
    answer = await show_status(world.east, ask(method="GET"))
    return answer.status_code, dict(json.loads(answer.get_body())["missing"])


@in_virtual_time
async def test_when_it_refuses_or_is_silent_health_names_it_until_it_is_back() -> None:
    world, account = World(), Account()
    world.east.missing_places.watch(PLACE, account.look)

    healthy = await ask_health(world)
    account.does = "refuse"
    refused = await ask_health(world)
    account.does = "say nothing"
    silent = await ask_health(world)
    account.does = "answer"
    back = await ask_health(world)

    # Messages are processed all the same, so the region stays in service.
    assert [healthy, refused, silent, back] == [
        (200, {}),
        (200, {PLACE: "it refuses: 403 AuthorizationFailure"}),
        (200, {PLACE: "no answer"}),
        (200, {}),
    ]


@in_virtual_time
async def test_when_it_is_silent_nothing_waits_for_it() -> None:
    world, account = World(), Account()
    account.does = "say nothing"
    world.east.missing_places.watch(PLACE, account.look)

    began = virtual_time.now()
    await report_health(world.east, ask(method="GET"))
    await receive_message(world.east, delivery_of(message(0)))

    assert world.amounts() == [1]
    assert virtual_time.now() - began < 1

"""A type has a delay, a dispatch or a lag of its own: nothing is lost, or out of order."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.handler import HERE, OUTPUTS, Context, Dispatch, Handled, Handlers, Output
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from shared.settings import InvalidSettings, Settings
from shared.storage.documents import decode_pending
from shared.testkit.injected_faults import ProcessKilled
from shared.wiring import connect
from tests.crashes import assert_the_same_whatever_fails, redelivered, rest
from tests.unit.shared.test_settings import ENVIRONMENT
from tests.world import (
    DELAY_SECONDS,
    REGIONS,
    Account,
    Amount,
    World,
    booked,
    message,
    sweep_later,
    take,
)

SESSION = "acc-7"


def sending(*outputs: Output) -> Any:
    """A handler that books an amount and sends these, and its amount before them."""

    def handle(account: Account, body: Amount, _: Context) -> Handled[Account]:
        told = Output("told", body, to=OUTPUTS)
        return Handled(booked(account, body), (told, *outputs))

    return handle


def world_of(**options: Any) -> World:
    """A world in which one type has these options, and another has none."""
    handlers = Handlers()
    handlers.register("own", state=Account, body=Amount, **options)(sending())
    handlers.register("usual", state=Account, body=Amount)(sending())
    return World(handlers=handlers)


def told(world: World, region: str) -> list[bytes]:
    return [one.body for one in world.bus.messages(region, "out")]


async def shown(world: World, session: str = SESSION) -> list[Any]:
    """What the change feed shows of a session: every document as it is now."""
    documents = world.journal.partitions[session].values()
    return [pending for one in documents if (pending := decode_pending(one))]


def visible(world: World, region: str, queue: str) -> list[float]:
    return [copy.visible_at for copy in world.bus.queues[region, queue]]


# When copies have a delay of their own.


async def test_when_a_type_has_a_delay_the_app_gives_it_to_the_copies_it_sends() -> None:
    handlers = Handlers()
    handlers.register("usual", state=Account, body=Amount)(
        sending(
            Output("own", Amount(amount=1), to=HERE),
            Output("usual", Amount(amount=1), "other", HERE),
            Output("usual", Amount(amount=2), "another", HERE, delay=timedelta(seconds=7)),
            Output("own", Amount(amount=2), "another", HERE, delay=timedelta(0)),
        )
    )
    handlers.register("own", state=Account, body=Amount, delay=timedelta(seconds=2))(sending())
    world = World(handlers=handlers)

    await take(world.east, message(0, kind="usual"))

    assert visible(world, "east", "in") == [0.0] * 4
    assert visible(world, "west", "in") == [2.0, DELAY_SECONDS, 7.0, 0.0]


async def test_when_a_published_message_has_a_delay_only_its_copies_have_it(world: World) -> None:
    producer = IdempotentProducer(world.producer(), IdempotentProducerOptions("bank"))
    messages = [
        SessionMessage("a", "account.add", '{"amount":1}', delay=timedelta(minutes=2)),
        SessionMessage("b", "account.add", '{"amount":2}'),
    ]
    await producer.send(messages, session=SESSION)

    assert visible(world, "east", "in") == [0.0, 0.0]
    assert visible(world, "west", "in") == [120.0, DELAY_SECONDS]
    # They come to the west in another order, and numbers put that right.
    first, second = world.bus.messages("west", "in")
    await take(world.west, second, first)
    await sweep_later(world, "west")
    assert world.amounts() == [1, 2]


async def test_when_a_producer_dies_its_copies_keep_their_delay(world: World) -> None:
    producer = IdempotentProducer(world.producer(), IdempotentProducerOptions("bank"))
    late = SessionMessage("a", "account.add", '{"amount":1}', delay=timedelta(minutes=2))
    with world.without("west"):
        await producer.send([late], session=SESSION)
    await sweep_later(world, "west")

    (visible_at,) = visible(world, "west", "in")
    assert visible_at == pytest.approx(world.clock.seconds + 120.0)


@pytest.mark.parametrize("delay", [timedelta(seconds=-1), timedelta(days=2)])
def test_an_impossible_delay_is_refused(delay: timedelta) -> None:
    with pytest.raises(InvalidMessage, match="delay"):
        SessionMessage("a", "t", "{}", delay=delay)
    with pytest.raises(ValueError, match="delay"):
        Output("t", Amount(amount=1), delay=delay)
    for option in ("delay", "lag"):
        with pytest.raises(ValueError, match=f"'own': the {option}"):
            world_of(**{option: delay})


# When outputs are dispatched asynchronously.


async def test_when_dispatch_is_asynchronous_the_feed_of_each_region_sends_its_outputs() -> None:
    world = world_of(dispatch=Dispatch.ASYNCHRONOUS)
    await take(world.east, message(0, 1, kind="own"))
    assert [told(world, region) for region in REGIONS] == [[], []]

    await world.west.recovery.recover(await shown(world))
    assert [told(world, region) for region in REGIONS] == [[], [b'{"amount":1}']]
    await world.east.recovery.recover(await shown(world))

    assert [told(world, region) for region in REGIONS] == [[b'{"amount":1}']] * 2
    assert await world.pending() == []


async def test_when_the_feed_has_skipped_them_the_sweep_sends_them() -> None:
    world = world_of(dispatch=Dispatch.ASYNCHRONOUS)
    await take(world.east, message(0, 1, kind="own"))

    await sweep_later(world)

    assert [told(world, region) for region in REGIONS] == [[b'{"amount":1}']] * 2


async def test_when_another_message_follows_an_asynchronous_one_outputs_keep_their_order() -> None:
    world = world_of(dispatch=Dispatch.ASYNCHRONOUS)
    kinds = ("own", "usual", "own", "own", "usual", "own")
    for sequence, kind in enumerate(kinds):
        await take(world.east, message(sequence, kind=kind))
    await sweep_later(world)

    bodies = [b'{"amount":%d}' % (n + 1) for n in range(len(kinds))]
    assert world.amounts() == [1, 2, 3, 4, 5, 6]
    for region in REGIONS:
        assert told(world, region) == bodies
        numbers = [one.number.sequence for one in world.bus.messages(region, "out") if one.number]
        assert numbers == list(range(len(kinds)))


async def test_when_any_call_goes_wrong_asynchronous_outputs_are_the_same_in_both_regions() -> None:
    async def work(world: World) -> None:
        kinds = ("own", "usual", "own")
        await redelivered(world, *(message(n, kind=kind) for n, kind in enumerate(kinds)))
        for services in (world.east, world.west):
            with suppress(LockstepError, ProcessKilled):
                await services.recovery.recover(await shown(world))
        await rest(world)

    handlers = world_of(dispatch=Dispatch.ASYNCHRONOUS).handlers
    await assert_the_same_whatever_fails(work, handlers, [1, 2, 3], outputs=3)


# When the outputs of a type are left to their worker for longer, or for less long.


async def test_when_a_lag_is_short_the_feed_helps_after_it() -> None:
    world = world_of(lag=timedelta(seconds=1))
    with world.without(*REGIONS):
        await take(world.east, message(0, 1, kind="own"))
    world.clock.seconds += 60.0
    began = world.clock.seconds

    await world.east.recovery.recover(await shown(world))

    assert told(world, "east") == [b'{"amount":1}']
    assert world.clock.seconds == began + 1.0


async def test_when_a_lag_is_long_neither_feed_nor_sweep_comes_sooner() -> None:
    world = world_of(dispatch=Dispatch.ASYNCHRONOUS, lag=timedelta(minutes=1))
    await take(world.east, message(0, 1, kind="own"))
    began = world.clock.seconds

    await world.east.recovery.recover(await shown(world))
    assert world.clock.seconds == began
    while world.clock.seconds < began + 50.0:
        await world.east.recovery.sweep()
        world.clock.seconds += 5.0
    assert told(world, "east") == []
    world.clock.seconds = began + 61.0
    await world.east.recovery.sweep()

    assert told(world, "east") == [b'{"amount":1}']


def test_when_a_lag_is_shorter_than_an_acknowledgement_waits_the_app_does_not_start() -> None:
    handlers = world_of(lag=timedelta(milliseconds=500)).handlers
    with pytest.raises(InvalidSettings, match="type 'own' must be more than"):
        connect(Settings.read(ENVIRONMENT), handlers)

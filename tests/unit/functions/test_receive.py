"""The session trigger: parse, consume, and only then let the host settle."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from functions.triggers.receive import receive_message
from shared.engine.consume.outcomes import Outcome
from tests.deliveries import delivery, delivery_of
from tests.world import World, burn, message, require


async def test_identity_comes_from_the_application_properties_alone(world: World) -> None:
    await receive_message(world.east, delivery_of(message(0)))

    assert [entry["identities"][0]["id"] for entry in world.entries()] == [message(0).id]


async def test_messages_are_of_the_session_that_they_name_whatever_the_broker_says(
    world: World,
) -> None:
    sent = [message(0), message(1), message(2, session="acc-8"), message(0, session="acc-8")]

    await asyncio.gather(*(receive_message(world.east, delivery_of(one)) for one in sent))

    assert (world.amounts(), world.amounts("acc-8")) == ([1, 2], [1])
    assert dict(require(await world.journal.head("acc-8")).parked) == {"bank": 1}


async def receive_each_outcome(world: World) -> list[str]:
    """A delivery of nearly every outcome, and what each is called; every body holds a secret."""
    secret = b'{"amount": 1, "card": "4111222233334444-secret"}'
    sent = [
        *(replace(message(n, level=1), body=secret) for n in (0, 0)),
        replace(message(1), body=secret),
        replace(message(3, level=1), body=secret),
        # Its handler repeats the amount in what it raises.
        replace(message(1, level=1, kind="account.burn"), body=b'{"amount": 4111222233334444}'),
        replace(message(0, session="b"), body=b'{"amount": "4111222233334444-secret"}'),
        replace(message(0, session="c", kind="no.such.type"), body=secret),
        replace(message(0, session="d", kind="account.hint"), body=secret),
        # Two to be rejected: other content under a number, and what is no message.
        replace(message(0, level=1), body=secret.replace(b"1", b"2", 1)),
    ]
    for one in sent:
        await receive_message(world.east, delivery_of(one))
    await receive_message(
        world.east, delivery(b"4111222233334444-secret", {"origin": "4111222233334444"})
    )
    return [one.id for one in sent]


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_a_delivery_is_a_line_only_when_asked_for_and_no_line_holds_a_body(
    is_asked_for: bool, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world.east = replace(world.east, logs_messages=is_asked_for)

    sent = await receive_each_outcome(world)

    lines = [one.getMessage() for one in caplog.records if one.name == "lockstep.receive"]
    called = ["faulted", "faulted", "faulted", "faulted", "refused", "rejected", "rejected"]
    if is_asked_for:
        called += ["duplicate", "parked", "processed"]
    assert sorted(line.split()[0] for line in lines) == sorted(called)
    (faulted,) = [line for line in lines if "type='account.burn'" in line]
    raised_at = f"tests/world.py:{burn.__code__.co_firstlineno + 4} in burn"
    assert faulted == (
        f"faulted session='acc-7' message={sent[4]!r} type='account.burn' entry='3'"
        f" raised_at={raised_at!r}"
    )
    everything = [f"{one.getMessage()} {vars(one)}" for one in caplog.records]
    # A number as long as this is no part of a time, nor of the id of a thread.
    assert not [line for line in everything if "4111222233334444" in line]


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        asyncio.CancelledError("gone"),
        GeneratorExit("over"),
        RuntimeError("a defect"),
    ],
)
async def test_when_a_delivery_fails_with_anything_it_is_paused_logged_and_raised_as_an_exception(
    world: World, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async def fail(*_: Any, **__: Any) -> Outcome:
        raise error

    world.east.consumer.consume = fail  # type: ignore[method-assign]

    # The worker library answers the host for an Exception only.
    is_closed = isinstance(error, GeneratorExit)
    with pytest.raises(GeneratorExit if is_closed else RuntimeError, match=str(error)):
        await receive_message(world.east, delivery_of(message(0), 3))

    assert world.clock.now() == (0.0 if is_closed else 4.0)
    lines = [one for one in caplog.records if "a delivery comes again" in one.msg % one.args]
    assert len(lines) == (0 if is_closed else 1)
    assert world.east.in_hand.began == {}


async def test_when_the_invocation_is_cancelled_nothing_is_paused(world: World) -> None:
    waiting = asyncio.Event()

    async def wait(*_: Any, **__: Any) -> Outcome:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    world.east.consumer.consume = wait  # type: ignore[method-assign]
    receiving = asyncio.create_task(receive_message(world.east, delivery_of(message(0), 9)))
    await waiting.wait()
    assert len(world.east.in_hand.began) == 1
    receiving.cancel()

    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert world.clock.now() == 0.0
    assert world.east.in_hand.began == {}

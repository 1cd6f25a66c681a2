"""A queue or container that the settings name is missing or silent when the app starts."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from functions.http.operate import report_health
from proof.simulation.world import virtual_time
from shared.domain.errors import Misconfigured
from shared.engine.operate.look import LOOK_AGAIN_SECONDS, LOOK_SECONDS_MAX, Look
from tests.world import POLICY, REGIONS, World, message


async def finished(look: Look) -> None:
    """The look has ended."""
    look.begin()
    assert look.looking is not None
    await look.looking


async def test_it_is_logged_as_an_error_and_stands_in_health(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.bus.missing = {("west", "errors")}
    await finished(world.east.look)

    health = json.loads((await report_health(world.east)).get_body())

    assert health["missing"] == {"queue 'errors' of west": "'errors' does not exist in region west"}
    (logged,) = [r for r in caplog.records if r.name == "lockstep.look"]
    assert logged.levelno == logging.ERROR
    assert "queue 'errors' of west cannot be used" in logged.getMessage()


async def test_every_queue_and_container_of_the_settings_is_looked_at() -> None:
    world = World(policy=replace(POLICY, reply_queues=frozenset({"answers"})))

    expected = {f"queue {q!r} of {r}" for r in REGIONS for q in ("in", "out", "errors", "answers")}
    assert set(world.east.look.places) == expected


async def test_a_container_may_be_missing_too() -> None:
    async def gone() -> None:
        raise Misconfigured("there is no such container")

    look = Look({"container 'leases'": gone})
    await finished(look)

    assert look.missing == {"container 'leases'": "there is no such container"}


async def test_health_does_not_wait_for_it_and_it_is_done_once(world: World) -> None:
    world.bus.silent = {*REGIONS}

    health = json.loads((await report_health(world.east)).get_body())
    looking = world.east.look.looking
    await report_health(world.east)

    assert health["missing"] == {}
    assert looking is not None
    assert looking is world.east.look.looking
    looking.cancel()


def test_when_somebody_has_created_it_health_names_it_no_longer() -> None:
    async def work() -> None:
        world = World()
        look = world.east.look
        world.bus.missing = {("west", "errors"), ("west", "out")}
        await finished(look)
        first = look.looking

        world.bus.missing = {("west", "out")}
        await asyncio.sleep(LOOK_AGAIN_SECONDS - 1)
        look.begin()
        assert look.looking is first
        await asyncio.sleep(1)
        await finished(look)

        health = json.loads((await report_health(world.east)).get_body())
        assert set(health["missing"]) == {"queue 'out' of west"}
        second = look.looking
        world.bus.missing = set()
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        await finished(look)
        assert (look.looking is second, look.missing) == (False, {})
        # Nothing is missing any more, so nothing is looked at again.
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        third = look.looking
        look.begin()
        assert look.looking is third

    virtual_time.run(work())


def test_it_ends_though_nobody_answers() -> None:
    async def work() -> None:
        world = World()
        world.bus.silent = {"west"}
        await finished(world.east.look)
        assert virtual_time.now() <= LOOK_SECONDS_MAX
        assert set(world.east.look.missing) == {
            f"queue {q!r} of west" for q in ("in", "out", "errors")
        }
        assert set(world.east.look.missing.values()) == {"no answer"}

    virtual_time.run(work())


async def test_messages_are_processed_whatever_it_finds(world: World) -> None:
    world.bus.missing = {("west", "errors")}
    world.east.look.begin()

    await world.east.consumer.consume(message(0, kind="account.bill"))

    assert len(world.outputs("east")) == 1

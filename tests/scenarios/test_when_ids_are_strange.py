"""Ids of every kind: as long as may be, with any character, or built to collide."""

import json
from dataclasses import replace
from itertools import combinations

import pytest

from functions.triggers.receive import receive_message
from shared.domain.message import GROUP_CHARACTERS_MAX, ID_CHARACTERS_MAX
from tests.deliveries import delivery_of
from tests.world import World, message

IDS = [
    "i" * ID_CHARACTERS_MAX,
    "ü" * ID_CHARACTERS_MAX,
    "\U0001f6e9" * ID_CHARACTERS_MAX,
    "a/b\\c?d#e",
    "../..",
    ".",
    " ",
    "'\"",
    "\u0000",
    "000000000000",
    "genesis",
    "A",
    "a",
    "ä",
    "a\u0308",
    "marker-" + "0" * 32,
]


@pytest.mark.parametrize("session", IDS)
async def test_any_session_id_of_at_most_128_characters_is_a_session(session: str) -> None:
    world = World()
    sent = [message(n, session=session, kind="account.bill") for n in (2, 0, 1)]

    for arriving in sent:
        await receive_message(world.east, delivery_of(arriving))
        await receive_message(world.west, delivery_of(arriving))

    assert world.amounts(session) == [1, 2, 3]
    assert len(world.outputs("east")) == len(world.outputs("west")) == 3


async def test_session_ids_that_look_alike_are_different_sessions() -> None:
    world = World()
    for n, session in enumerate(IDS):
        await receive_message(world.east, delivery_of(message(0, n, session=session)))

    assert [world.amounts(session) for session in IDS] == [[n] for n in range(len(IDS))]


@pytest.mark.parametrize("numbered", [True, False])
async def test_message_ids_that_look_alike_are_different_messages(*, numbered: bool) -> None:
    world = World()
    for n, name in enumerate(IDS):
        sent = replace(message(n, kind="account.bill"), id=name)
        if not numbered:
            sent = replace(sent, number=None, time="2026-05-28T20:26:40Z")
        await receive_message(world.east, delivery_of(sent))
        await receive_message(world.west, delivery_of(sent))

    assert world.amounts() == list(range(1, len(IDS) + 1))
    assert len(dict(world.outputs("east"))) == len(IDS)


@pytest.mark.parametrize("first", ["a_b", "a-b", "a/b", "a\u0000b", "a"])
async def test_ids_built_to_collide_do_not(first: str) -> None:
    pairs = [(first, "c"), (first[0], first[1:] + "c"), (first + "c", "c"), (first, "cc")]
    pairs = [(session, name) for session, name in pairs if session and name]
    world = World()
    for n, (session, name) in enumerate(dict.fromkeys(pairs)):
        sent = replace(
            message(0, n, session=session, kind="account.bill"),
            id=name,
            number=None,
            time="2026-05-28T20:26:40Z",
        )
        await receive_message(world.east, delivery_of(sent))

    outputs = world.outputs("east")
    assert len(outputs) == len(dict.fromkeys(pairs))
    for (one, _), (other, _) in combinations(outputs, 2):
        assert one != other


@pytest.mark.parametrize(
    "group", ["g" * GROUP_CHARACTERS_MAX, "a/b\\c?d#e", "ü\U0001f6e9", " ", "bank\u0000"]
)
async def test_any_group_is_a_group(group: str) -> None:
    world = World()
    for sequence in (1, 2, 0):
        await receive_message(world.east, delivery_of(message(sequence, group=group)))

    assert world.amounts() == [1, 2, 3]


async def test_a_group_that_is_too_long_is_refused_by_name() -> None:
    world = World()
    too_long = message(0, group="g" * (GROUP_CHARACTERS_MAX + 1))

    await receive_message(world.east, delivery_of(too_long))

    assert not world.entries()
    (report,) = world.bus.messages("west", "errors")
    said = "the producer group has 137 characters, over 136"
    assert json.loads(report.body)["reason"] == said

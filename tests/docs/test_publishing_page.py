"""docs/publishing.md: its programs run, and its limits are those of the code."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.domain.message import (
    BODY_BYTES_MAX,
    ID_CHARACTERS_MAX,
    OWNER_LEVEL_MAX,
    QUEUE_CHARACTERS_MAX,
    SEQUENCE_MAX,
    TYPE_CHARACTERS_MAX,
)
from shared.domain.producer import HTTP_GROUP, REMEMBERED_MAX, RESERVED_PREFIXES
from shared.engine.publish.publish import Producer
from shared.settings import Settings
from shared.storage.limits import OPERATION_BYTES_MAX, OPERATION_MESSAGES_MAX
from tests.world import World

PAGE = (Path(__file__).parents[2] / "docs/publishing.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SETTINGS = {
    "LOCKSTEP_REGION": "east",
    "LOCKSTEP_REGIONS": "east,west",
    "ServiceBus_east": "Endpoint=sb://nowhere/",
    "ServiceBus_west": "Endpoint=sb://nowhere/",
    "Cosmos": "AccountEndpoint=http://nowhere/;AccountKey=bm90aGluZw==;",
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which the page's programs find their producer."""
    world = World()

    @asynccontextmanager
    async def opened(_: Settings) -> AsyncIterator[Producer]:
        yield world.producer()

    monkeypatch.setattr("shared.publishing.opening.open_producer", opened)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    return world


async def test_the_programs_of_the_page_run(world: World) -> None:
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(compile(program, "docs/publishing.md", "exec"), names)

    assert await names["publish"]() == 0
    assert names["publish_blocking"]() == 2

    bodies = [m.body for m in world.bus.messages("east", "in")]
    assert bodies == [b'{"amount":5}', b'{"amount":7}', b'{"amount":9}']


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    limits = PAGE.split("## Limits\n", 1)[1].split("\n## ", 1)[0]

    for limit in (
        BODY_BYTES_MAX,
        OPERATION_MESSAGES_MAX,
        OPERATION_BYTES_MAX,
        REMEMBERED_MAX,
        OWNER_LEVEL_MAX,
        SEQUENCE_MAX,
        ID_CHARACTERS_MAX,
        TYPE_CHARACTERS_MAX,
        QUEUE_CHARACTERS_MAX,
    ):
        assert f"{limit:,}" in limits
    for reserved in (*RESERVED_PREFIXES, HTTP_GROUP):
        assert f"`{reserved}`" in limits

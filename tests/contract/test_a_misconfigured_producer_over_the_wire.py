"""A producer whose settings are wrong is refused by name, and numbers nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from local.cloud import Cloud
from shared.domain.errors import Misconfigured
from shared.domain.producer import Draft, ProducerOptions
from shared.settings import Connection, Settings
from shared.wiring import Adapters, open_producer
from tests.cloud import settings_of

pytestmark = pytest.mark.wire

DRAFTS = [Draft("d", "account.add", b"{}")]
OPTIONS = ProducerOptions("bank")
NONSENSE = Connection(connection_string="nonsense")


def misspelt(settings: Settings) -> Settings:
    return replace(settings, queue="nowhere")


def with_a_wrong_key(settings: Settings) -> Settings:
    wrong = {
        region: Connection((c.connection_string or "").replace("AccessKey=", "AccessKey=x"))
        for region, c in settings.service_bus.items()
    }
    return replace(settings, service_bus=wrong)


def unreadable(settings: Settings) -> Settings:
    return replace(settings, service_bus=dict.fromkeys(settings.regions, NONSENSE))


def without_a_store(settings: Settings) -> Settings:
    return replace(settings, cosmos=NONSENSE)


@pytest.mark.parametrize(
    ("session", "spoil", "named"),
    [
        ("s-1", misspelt, "'nowhere' of east"),
        ("s-2", with_a_wrong_key, "The key, the role or the connection string is wrong"),
        ("s-3", unreadable, "Connection string is either blank or malformed"),
        ("s-4", without_a_store, "Cosmos DB"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_numbered(
    cloud: Cloud,
    adapters: Adapters,
    session: str,
    spoil: Callable[[Settings], Settings],
    named: str,
) -> None:
    async with open_producer(spoil(settings_of(cloud))) as producer:
        with pytest.raises(Misconfigured, match=named):
            await producer.publish(session, DRAFTS, OPTIONS)

    assert await adapters.journal.ledger(session, "bank") is None


async def test_one_region_that_is_wrong_is_pending_with_its_reason(cloud: Cloud) -> None:
    settings = settings_of(cloud)
    first, second = settings.regions
    halfway = replace(settings, service_bus={**settings.service_bus, second: NONSENSE})

    async with open_producer(halfway) as producer:
        published = await producer.publish("halfway", DRAFTS, OPTIONS)

    assert (published.regions, published.pending) == ((first,), 1)
    assert "malformed" in published.missing[second]

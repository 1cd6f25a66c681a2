"""Posts over HTTP, published and asked by turns: messages per second until all had effect.

Each session has a client, which has one message in hand at a time, or all of them at once.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import aiohttp

from local.functions_host.config.keys import DEVELOPMENT_KEY
from local.testing.cloud import CloudProcess
from local.testing.patience import wait_until
from proof.bench.counts.whole_way import ASKED, PUBLISHED, running_counter
from proof.bench.throughput.consuming import Shape
from proof.testbed.command import RunFailed, show_progress

CLIENTS = Shape(50, 20)
WAYS = (PUBLISHED, ASKED)
TIMES_AIM = 5.0
LIMIT_SECONDS = 300.0


def measure_http(rounds: int) -> Iterator[str]:
    """Yield a line for each manner, with the medians of both ways, and whether the aim holds."""
    with running_counter() as cloud:
        for manner, at_once in (("one in hand", False), ("all at once", True)):
            rates: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(rounds):
                for way in WAYS:
                    show_progress(f"{CLIENTS.sessions}x{CLIENTS.each}, {manner}, {way}")
                    with settled_afterwards(cloud, way) as begun:
                        asyncio.run(post_all(cloud, way, f"{manner[:3]}-{number}", at_once))
                    rates[way].append(CLIENTS.messages / (time.monotonic() - begun))
            published, asked = (rates[way] for way in WAYS)
            times = median(a / p for a, p in zip(asked, published, strict=True))
            word = "holds" if times >= TIMES_AIM else "missed"
            yield (
                f"{manner}: published {median(published):.0f}/s, asked {median(asked):.0f}/s;"
                f" aim {word}: {times:.1f} times, at least {TIMES_AIM:g}"
            )


@contextmanager
def settled_afterwards(cloud: CloudProcess, way: str) -> Iterator[float]:
    """Wait at the end until the first region has processed what was published."""
    region = cloud.regions[0]
    before, begun = cloud.control.count_completed(region), time.monotonic()
    yield begun
    if way == PUBLISHED:
        wait_until(
            lambda: cloud.control.count_completed(region) >= before + CLIENTS.messages,
            seconds=LIMIT_SECONDS,
            what=f"{region} did not process what was published",
            error=RunFailed,
        )


async def post_all(cloud: CloudProcess, way: str, name: str, at_once: bool) -> None:
    """Post every client's messages; raises RunFailed for what is not taken."""
    host = cloud.contract["hosts"][cloud.regions[0]]
    wish = {"Prefer": "wait=14"} if way == ASKED else {}
    limit = aiohttp.ClientTimeout(LIMIT_SECONDS)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as web:

        async def post_number(place: int, number: int) -> None:
            where = f"{host}/api/sessions/silently-{way}-{name}-{place}/messages"
            key = {"x-functions-key": DEVELOPMENT_KEY, "Idempotency-Key": f"m-{number}"}
            query = {"type": "count.silently"}
            # What has no answer in its time is posted again under the same key, as a client does.
            while True:
                async with web.post(where, params=query, json={}, headers=key | wish) as response:
                    await response.read()
                if response.status in (200, 202):
                    return
                if response.status < 500:
                    raise RunFailed(f"a message was not {way}: {response.status}")

        async def be_client(place: int) -> None:
            posts = [post_number(place, number) for number in range(CLIENTS.each)]
            if at_once:
                await asyncio.gather(*posts)
                return
            for one in posts:
                await one

        await asyncio.gather(*(be_client(place) for place in range(CLIENTS.sessions)))

"""Every view of the operations page in a browser, in both themes, and a failover watched on it.

With LOCKSTEP_SCREENSHOTS, a folder, the pictures are kept there (`make screenshots`).
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from cli.cloud import app_settings
from local.testing.patience import Patience, PatienceExhausted, until
from proof.testbed.cloud import running_cloud
from proof.testbed.faults import hosts_killed
from shared.domain import next_entry
from shared.domain.handler import HandlerResult
from shared.domain.journal import Attempt, Owner
from shared.domain.message import Message, derive_id
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX
from shared.settings import Settings
from shared.wiring import Adapters, open_producer
from tests.e2e.stack import Stack, broken, status
from tests.e2e.test_operations_page import browser, look, open_page

__all__ = ["browser"]

pytestmark = pytest.mark.e2e

SESSIONS = 10_000
# What follows the journal's feed would read each of the sessions, and has nothing to do with them.
NO_FEED = {f"AzureWebJobs.{name}.Disabled": "true" for name in ("recover", "begin_sagas")}
KEY = "lockstep-local"
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "3"}
WATCH_SECONDS_MAX = 90.0

type OpenView = Callable[..., Awaitable[None]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chosen = Path(os.environ.get("LOCKSTEP_SCREENSHOTS") or tmp_path)
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@asynccontextmanager
async def sending(stack: Stack, **settings: str) -> AsyncIterator[None]:
    """Messages of ten sessions, at most ten a second."""
    reached = Settings.read(app_settings(stack.cloud) | settings)

    async def send() -> None:
        async with open_producer(reached) as producer:
            for n in count():
                sent = [status(f"load-{session:02d}", n) for session in range(10)]
                await asyncio.gather(*(producer.send([one]) for one in sent))
                await asyncio.sleep(1)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def counts(page: Page, region: str) -> list[int]:
    """What the bars of a region say, the newest last."""
    shown = page.get_by_role("img", name=re.compile("Messages of the last minute"))
    label = await shown.get_attribute("aria-label") or ""
    told = label.partition(f"{region}: ")[2].partition(";")[0]
    return [int(one) if one.isdecimal() else 0 for one in told.split(", ")]


async def watch(page: Page, is_seen: Callable[[list[int], list[int]], bool]) -> None:
    """Wait until the bars of both regions show it; the page is loaded again by itself."""
    patience = Patience(WATCH_SECONDS_MAX)
    while not is_seen(await counts(page, "east"), await counts(page, "west")):
        if patience.is_over():
            raise PatienceExhausted("it was not seen on the page")
        await asyncio.sleep(0.5)


async def send_again_on_the_page(
    page: Page, open_view: OpenView, stack: Stack, folder: Path
) -> None:
    """A rejected delivery is seen in the error queue, previewed, and sent again."""
    await open_view("/errors", session="N999")
    await expect(page.get_by_text("Properties and body")).to_be_visible()
    await look(page, "errors", folder)
    await page.get_by_text("Send again", exact=True).click()
    await page.get_by_label("Who decides").fill("Ada")
    await page.get_by_label("Why").fill("its sender gives a time now")
    await page.get_by_role("button", name="Preview send again").click()
    await look(page, "again", folder)
    await page.get_by_role("button", name="Send again").click()
    await expect(page.get_by_text("The message is safe")).to_be_visible()
    await look(page, "sent", folder)
    until(lambda: "N999" in stack.entries(), what="the effect")
    await open_view("/errors", session="N999", show="all")
    await expect(page.get_by_text("Ada has sent it again")).to_be_visible()
    identities = [one["id"] for e in stack.entries()["N999"] for one in e["identities"]]
    assert len(identities) == 1


async def watch_a_failover(page: Page, open_view: OpenView, stack: Stack, folder: Path) -> None:
    async with sending(stack, **DELAY):
        await open_view("/regions", every="2")
        await watch(page, lambda east, _: all(east[-3:]))
        await open_view("/regions")
        await look(page, "regions", folder)
        await open_view("/regions", every="2")
        with hosts_killed(stack.cloud.control, "east"):
            await watch(page, lambda east, west: not any(east[-3:]) and all(west[-3:]))
            await page.get_by_role("link", name="Stop").click()
            await expect(page.get_by_role("link", name="2 seconds")).to_be_visible()
            await look(page, "failover", folder)


def is_counted(stack: Stack, kind: str, count: int) -> bool:
    """Say whether the last look of a sweep found so much that needs attention, of this kind."""
    overview = stack.ask("west", "status")[1]["overview"] or {"attention": []}
    return (kind, count) in [(one["kind"], one["count"]) for one in overview["attention"]]


def is_reserved(sagas: Stack, key: str, state: str) -> bool:
    saga = sagas.saga("west", key)
    return saga["state"] == state and saga["steps"][1]["outcome"] is not None


async def look_at_sagas(page: Page, open_view: OpenView, sagas: Stack, folder: Path) -> None:
    """One saga waits for approval, another one was turned back; both are in the list."""
    stock, lines = {"quantity": 2}, [{"product": "p", "quantity": 2}]
    sagas.ask("west", "sessions/stock%3Ap/messages?type=stock.receive", "POST", stock)
    until(lambda: bool(sagas.state("west", "stock:p")), what="the stock")
    for key, reaches in (("order-1", "running"), ("order-2", "compensated")):
        sagas.start_saga("west", key, lines=lines, approval_seconds=1200)
        is_seen = partial(is_reserved, sagas, key, reaches)
        until(is_seen, what=f"the reservation of {key}")
    await open_view("/sagas")
    await expect(page.get_by_role("link", name="order-2")).to_be_visible()
    await look(page, "sagas", folder)
    await page.get_by_role("link", name="order-1").click()
    await look(page, "saga-waiting", folder)
    await open_view("/saga", key="order-2")
    await look(page, "saga-compensated", folder)
    await open_view("/session", session="saga:order-2")
    await look(page, "saga-journal", folder)


@pytest.mark.proof
async def test_every_view_in_both_themes(tmp_path: Path, folder: Path, browser: Browser) -> None:
    with running_cloud(logs=tmp_path, settings=DELAY) as cloud:
        stack = Stack(cloud)
        for number in range(3):
            session = f"N1422{number}"
            sent = [status(session, n) for n in range(4)]
            await stack.send({session: [broken(session), *sent[1:]]})
        await stack.send({"N777UA": [status("N777UA", n) for n in range(25)]})
        stray = Message(derive_id("stray"), "N999", "flight.status", status("N999", 0).body)
        await stack.put("west", stray)
        until(lambda: len(stack.entries().get("N14222", [])) == 4, what="parking")
        until(lambda: "N777UA" in stack.entries(), what="work")
        page = await open_page(browser)
        address = f"{cloud.contract['hosts']['west']}/api/operate"

        async def open_view(view: str, **parameters: str) -> None:
            query = "&".join(f"{name}={value}" for name, value in parameters.items())
            await page.goto(f"{address}{view}?code={KEY}&{query}".rstrip("&"))

        await open_view("/faults")
        await expect(page.get_by_text("flight: Field required").first).to_be_visible()
        await look(page, "faults", folder)
        await open_view("/session", session="N14220")
        await look(page, "session-halted", folder)
        await open_view("/session", session="N777UA")
        await look(page, "session", folder)
        await open_view("/sessions", prefix="N")
        await expect(page.get_by_role("link", name="N777UA")).to_be_visible()
        await look(page, "sessions", folder)
        await open_view("/sessions", state="halted")
        await expect(page.get_by_role("row")).to_have_count(4)
        await look(page, "sessions-halted", folder)
        until(lambda: is_counted(stack, "halt", 3), what="a look of the sweep")
        # It asks again by itself, as what it shows may be some seconds old.
        await open_view("")
        await expect(page.get_by_role("row", name=re.compile("halt 3"))).to_be_visible()
        await open_view("", refresh="no")
        await look(page, "overview", folder)
        await look_at_sagas(page, open_view, stack, folder)
        await open_view("/sagas", state="nonsense")
        await look(page, "problem", folder)

        await send_again_on_the_page(page, open_view, stack, folder)
        await open_view("/decisions")
        await look(page, "decisions", folder)
        await watch_a_failover(page, open_view, stack, folder)


@pytest.mark.proof
async def test_ten_thousand_sessions_are_found_and_paged(
    tmp_path: Path, folder: Path, browser: Browser
) -> None:
    with running_cloud(logs=tmp_path, settings=NO_FEED) as cloud:
        adapters = Adapters.of(Settings.read(app_settings(cloud)))
        slots = asyncio.Semaphore(32)

        async def begin(name: str) -> None:
            attempt = Attempt(name, Owner("east", "east-1"))
            opened = next_entry.open_entry(EntryInput(None, status(name, 0), attempt))
            entry = next_entry.complete(opened, HandlerResult({"events": 1}, (), {}, {}), NO_OUTBOX)
            async with slots:
                await adapters.journal.append(entry)

        await asyncio.gather(*(begin(f"N{number:05d}") for number in range(SESSIONS)))
        await adapters.close()
        page = await open_page(browser)
        where = f"{cloud.contract['hosts']['west']}/api/operate/sessions?code={KEY}"

        async def read_cost() -> float:
            footer = await page.get_by_text("This page cost").inner_text()
            return float(re.findall(r"[\d.]+", footer)[0])

        await page.goto(where)
        costs = [await read_cost()]
        for first in ("N00025", "N00050"):
            await page.get_by_role("link", name="Next page").click()
            await expect(page.get_by_role("row").nth(1)).to_contain_text(first)
            costs.append(await read_cost())
        await page.get_by_label("Name begins with").fill("N0999")
        await page.get_by_role("button", name="Search").click()
        await expect(page.get_by_role("row")).to_have_count(11)
        few = await read_cost()
        await page.screenshot(path=folder / "ten-thousand-light.png", full_page=True)

    # Twenty-five small queries and one search: what a page costs does not grow with the journal.
    assert max(costs) < 1.1 * min(costs)
    assert few < max(costs)

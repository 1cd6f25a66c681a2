"""The operations page in a browser, over the real app on the local host."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright, expect

from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from tests.e2e.stack import Stack, broken, status

pytestmark = pytest.mark.e2e

SESSION = "N14228"
GOOD_BODY = status(SESSION, 0).body.decode()
# Against hangs only: how long a page takes says more about the machine than about the page.
PAGE_MILLISECONDS_MAX = 60_000
CHROMIUM = shutil.which("chromium")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("not run: there is no chromium on PATH: `.ci/setup tests` installs it as root")
    expect.set_options(timeout=PAGE_MILLISECONDS_MAX)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield running
        await running.close()


async def open_page(browser: Browser, **options: Any) -> Page:
    """A page that waits as patiently as what is expected of it."""
    page = await browser.new_page(**options)
    page.set_default_timeout(PAGE_MILLISECONDS_MAX)
    return page


async def look(page: Page, name: str, folder: Path) -> None:
    """Axe finds nothing on the page, in both themes, and no view is wider than a telephone.

    What is wide is moved aside in its own box. A picture of each is kept.
    """
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 800})
            await page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
            assert await page.evaluate("document.documentElement.scrollWidth") == width, name
        found = (await Axe().run(page)).response["violations"]
        assert [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]] == []


async def preview(page: Page, action: str, who: str, why: str) -> None:
    await page.get_by_label("Who decides").fill(who)
    await page.get_by_label("Why").fill(why)
    await page.get_by_role("button", name=f"Preview {action}").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Preview: {action} 1")


async def find_by_id(page: Page, identity: str, folder: Path) -> None:
    """All that is known is an id, as a customer's log has it."""
    await page.get_by_label("Id, session or saga").fill(identity)
    await page.get_by_role("button", name="Find").click()
    await look(page, "find", folder)
    await page.get_by_role("link", name="follow it").click()
    await expect(page.get_by_role("group", name="the way of a message")).to_be_visible()
    await look(page, "follow", folder)
    await page.go_back()
    await page.get_by_role("link", name="position 0").click()
    await expect(page).to_have_url(re.compile("#position-0$"))
    await expect(page.get_by_text("flight: Field required").first).to_be_visible()


async def test_a_person_finds_a_fault_edits_it_and_what_was_parked_follows_in_order(
    tmp_path: Path, browser: Browser
) -> None:
    with running_cloud(logs=tmp_path, settings={}) as cloud:
        stack = Stack(cloud)
        sent = [status(SESSION, n) for n in range(4)]
        bad = broken(SESSION)
        await stack.send({SESSION: [bad, *sent[1:]]})
        until(lambda: len(stack.entries().get(SESSION, [])) == 4, what="parking")
        page = await open_page(browser)
        start = f"{cloud.contract['hosts']['west']}/api/operate/faults?code=lockstep-local"

        await page.goto(start)
        await expect(page.get_by_text("flight: Field required")).to_be_visible()
        await look(page, "overview", tmp_path)

        await find_by_id(page, bad.id, tmp_path)
        await page.goto(start)

        # Two operators look at the same fault, and both carry out a retry.
        other = await open_page(browser)
        await other.goto(start)
        for one, who in ((page, "Ada"), (other, "Bob")):
            await preview(one, "retry", who, "perhaps it was the handler")
            await one.get_by_role("button", name="Carry out").click()
            title = one.get_by_role("heading", level=1)
            await expect(title).to_have_text("Decision: retry, done")
        await expect(other.get_by_text(re.compile("NotHalted"))).to_be_visible()
        decisions = [e for e in stack.entries()[SESSION] if e.get("resolution")]
        assert [e["resolution"]["who"] for e in decisions] == ["Ada"]
        # What came of it may be loaded again: nothing is decided by looking.
        await other.reload()
        await expect(other.get_by_text(re.compile("over: NotHalted"))).to_be_visible()
        await look(page, "decision", tmp_path)

        await page.get_by_role("link", name=SESSION).click()
        await look(page, "session", tmp_path)
        await page.get_by_label("Body of the message").fill(GOOD_BODY)
        await page.get_by_label("Who decides").first.fill("Ada")
        await page.get_by_label("Why").first.fill("the producer was wrong")
        await page.get_by_role("button", name="Preview edit").click()
        await expect(page.get_by_text('{"at":1}')).to_be_visible()
        await look(page, "preview", tmp_path)
        await page.get_by_role("button", name="Carry out").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(f"Session {SESSION}")

        entries = stack.entries()[SESSION]
        completed = [e for e in entries if e["status"] == "completed"]
        assert [c["id"] for e in completed for c in e["identities"]] == [
            bad.id,
            *(m.id for m in sent[1:]),
        ]
        assert completed[-1]["state"]["events"] == 4
        await page.get_by_role("link", name="Needs attention", exact=True).click()
        await expect(page.get_by_text("Nothing needs attention.")).to_be_visible()
        await page.get_by_role("link", name="Sagas", exact=True).click()
        await look(page, "sagas", tmp_path)

"""The command line, an EventSource and the operations page follow a session over the real app."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from cli.cloud import KEY
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from tests.e2e.stack import REGIONS, Stack, broken, status
from tests.e2e.test_operations_page import browser, open_page

__all__ = ["browser"]

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SESSION = "N1"
# An EventSource as any page has it: it comes again by itself after each answer.
LISTEN = """path => {
    window.heard = [];
    new EventSource(path).onmessage = event => heard.push([+event.lastEventId, event.data]);
}"""


@contextmanager
def following(stack: Stack, to: Path) -> Iterator[None]:
    """Let `lockstep watch` write what it hears into a file; Ctrl-C ends it as it should."""
    urls = ",".join(stack.cloud.contract["hosts"][region] for region in REGIONS)
    words = [sys.executable, "-m", "cli", "watch", SESSION, "--json"]
    told = os.environ | {"LOCKSTEP_URL": urls, "LOCKSTEP_KEY": KEY}
    with to.open("wb") as out, subprocess.Popen(words, env=told, stdout=out) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 130


def told_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def ids(entries: list[dict[str, Any]], name: str) -> list[list[str]]:
    return [[one["id"] for one in entry[name]] for entry in entries]


async def test_everybody_hears_each_entry_once_while_a_region_dies(
    tmp_path: Path, browser: Browser
) -> None:
    with running_cloud(logs=tmp_path, settings={}) as cloud:
        stack, file = Stack(cloud), tmp_path / "told"
        west = cloud.contract["hosts"]["west"]
        await stack.send({SESSION: [broken(SESSION), status(SESSION, 1)]})
        await asyncio.to_thread(
            until, lambda: len(stack.entries().get(SESSION, [])) == 2, what="a halt"
        )
        listener, page = await open_page(browser), await open_page(browser)
        await listener.goto(f"{west}/api/health")
        await listener.evaluate(LISTEN, f"/api/sessions/{SESSION}/changes?code={KEY}")
        await page.goto(f"{west}/api/operate/session?session={SESSION}&code={KEY}")
        await page.get_by_role("link", name="Follow this session").click()
        await expect(page.get_by_text("shown again with each change")).to_be_visible()

        with following(stack, file):
            await asyncio.to_thread(until, lambda: len(told_in(file)) == 2, what="two changes")
            stack.kill("east")
            decided = {"action": "skip", "who": "Ada", "why": "no flight"}
            path = f"sessions/{SESSION}/resolution"
            assert (await asyncio.to_thread(stack.ask, "west", path, "POST", decided))[0] == 200
            newest = int(stack.entries()[SESSION][-1]["id"])
            has_heard = partial(lambda: told_in(file)[-1]["position"] == newest)
            await asyncio.to_thread(until, has_heard, what="the last change")
            await expect(page.get_by_role("heading", name=f"Position {newest}:")).to_be_visible()
            await listener.wait_for_function(f"heard.length > {newest}")
        heard = await listener.evaluate("heard")

        entries = stack.entries()[SESSION]
        told = told_in(file)
        assert [one["position"] for one in told] == [int(entry["id"]) for entry in entries]
        assert ids(told, "messages") == ids(entries, "identities")
        assert [(at, json.loads(data)) for at, data in heard] == [
            (one["position"], {name: one[name] for name in one if name != "event"}) for one in told
        ]
        # A state that the caller has is not sent again over the wire either.
        state, known = await listener.evaluate(
            """async path => {
                const first = await fetch(path);
                const tag = first.headers.get("ETag");
                const headers = {"If-None-Match": tag};
                const again = await fetch(path, {headers, cache: "no-store"});
                return [await first.json(), again.status];
            }""",
            f"/api/sessions/{SESSION}/state?code={KEY}",
        )
        assert (state["state"]["events"], known) == (1, 304)

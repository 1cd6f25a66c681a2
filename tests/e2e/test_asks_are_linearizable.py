"""Clients ask both regions over HTTP while hosts are killed and namespaces dead, for a minute.

What they hear has to be what one object would have said that takes one call at a time.
"""

import json
import random
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from local.testing.answers import KEY, request
from local.testing.patience import until
from proof.linearizability import TimedCall, find_fault
from proof.simulation.work.diaries import CALL, FAIL, READ, TELL, WRITE, DiaryModel, Read, Write
from proof.testbed.apps import compose_app
from proof.testbed.cloud import ROOT, running_cloud
from proof.testbed.faults import components_down, hosts_killed
from tests.e2e.stack import REGIONS, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

APP = Path(__file__).parent / "asked"
SETTINGS = {
    "PYTHONPATH": str(ROOT),
    "LOCKSTEP_LEASE_SECONDS": "5",
    "LOCKSTEP_SECONDARY_DELAY_SECONDS": "2",
}
SEED = 1990
# Few sessions, so that both regions are often at the same one.
SESSIONS, CLIENTS = 2, 10
KINDS = (*(WRITE,) * 20, *(TELL,) * 6, *(READ,) * 20, CALL, FAIL)
WAIT_SECONDS = 10
PAUSE_SECONDS_MAX = 0.05
# What is dead, how, and in which region the host is killed meanwhile.
OUTAGES = (("servicebus.west", "down", "east"), ("servicebus.east", "silent", "west"))
CALM_SECONDS, OUTAGE_SECONDS = 10.0, 20.0
DRAIN_SECONDS = 240
WAYS = (("asked",),) * 4 + (("published",), ("asked", "published"), ("published", "asked"))
DONE = {"asked": 200, "published": 202}
FAULTED = 422
# Each may take as long as an answer; then it is hopeless.
TRIES_MAX = 200

type HistoryCall = TimedCall[Write | Read, tuple[str, ...]]


@dataclass
class Client:
    """Asks, reads and publishes until it is told to stop, each thing until it has a reply."""

    stack: Stack
    name: str
    is_over: Event
    calls: list[tuple[str, HistoryCall]] = field(default_factory=list)
    safe: list[tuple[str, str]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def work(self) -> None:
        chance, lines = random.Random(f"{SEED} {self.name}"), 0
        while not self.is_over.is_set():
            session = chance.choice(sessions())
            lines += 1
            if chance.random() < 0.2:
                way = chance.choice(("", "/state"))
                self.look(session, chance.choice(REGIONS), way, f"look {self.name}/{lines}")
            else:
                kind, line = chance.choice(KINDS), f"{self.name}/{lines}"
                # The same key by both ways acts once.
                for way in chance.choice(WAYS) if kind in (WRITE, TELL, CALL) else ("asked",):
                    self.insist(session, kind, line, way, chance)
            self.is_over.wait(chance.random() * PAUSE_SECONDS_MAX)

    def insist(self, session: str, kind: str, line: str, way: str, chance: random.Random) -> None:
        """Try under one key, in either region, until it is known for good what became of it."""
        asked: Write | Read = Read() if kind == READ else Write(line)
        for _ in range(TRIES_MAX):
            call: HistoryCall = TimedCall(line, asked, time.monotonic())
            status, document = self.post(chance.choice(REGIONS), session, kind, line, way)
            self.statuses[f"{way} {status}"] += 1
            if kind == FAIL:
                # It never takes effect, so nobody may ever find it.
                assert status not in DONE.values(), document
                if status == FAULTED:
                    return
            else:
                assert status != FAULTED, document
                if way == "asked" and status == DONE[way]:
                    lines = tuple(document["answer"]["lines"])
                    call = replace(call, ended=time.monotonic(), answer=lines)
                self.calls.append((session, call))
                if status == DONE[way]:
                    self.safe += [(session, line)] if way == "published" else []
                    return
            time.sleep(chance.random() * PAUSE_SECONDS_MAX)
        raise AssertionError(f"nothing is known of {line} in {session}")

    def post(
        self, region: str, session: str, kind: str, line: str, way: str
    ) -> tuple[int | None, Any]:
        headers = KEY | {"Idempotency-Key": f"{session} {line}"}
        headers |= {"Prefer": f"wait={WAIT_SECONDS}"} if way == "asked" else {}
        path = f"sessions/{session}/messages?type={kind}"
        return self.request(region, path, "POST", headers, json.dumps({"line": line}).encode())

    def look(self, session: str, region: str, way: str, key: str) -> None:
        began = time.monotonic()
        status, document = self.request(region, f"sessions/{session}{way}", "GET", KEY)
        self.statuses[f"read{way} {status}"] += 1
        if status == 200:
            lines = tuple(document["state"].get("lines", ()))
            self.calls.append((session, TimedCall(key, Read(), began, time.monotonic(), lines)))

    def request(
        self, region: str, path: str, method: str, headers: Any, body: bytes | None = None
    ) -> tuple[int | None, Any]:
        """Status and document of an answer; no status where there was none."""
        url = f"{self.stack.cloud.contract['hosts'][region]}/api/{path}"
        try:
            answer = request(url, method, headers, body)
            return answer.status, json.loads(answer.body) if answer.body else None
        except (OSError, HTTPException, ValueError):
            return None, None


def test_what_clients_hear_while_hosts_and_namespaces_are_dead(tmp_path: Path) -> None:
    compose_app(APP, tmp_path / "app")
    place = ("--app", str(tmp_path / "app"))
    with running_cloud(*place, logs=tmp_path / "logs", settings=SETTINGS) as cloud:
        stack, is_over = Stack(cloud), Event()
        clients = [Client(stack, f"c{number}", is_over) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as threads:
            working = [threads.submit(client.work) for client in clients]
            try:
                for component, action, region in OUTAGES:
                    is_over.wait(CALM_SECONDS)
                    with (
                        components_down(cloud.control, component, action=action),
                        hosts_killed(cloud.control, region),
                    ):
                        before = count_answered(clients)
                        is_over.wait(OUTAGE_SECONDS)
                        until(lambda: count_answered(clients) > before, what="an answer")  # noqa: B023
            finally:
                is_over.set()
            for one in working:
                one.result()
        is_done = partial(is_everything_there, stack, clients)
        until(is_done, seconds=DRAIN_SECONDS, what="everything that is safe to take effect")
        ended = time.monotonic()
        last = {session: read_lines(stack, session) for session in sessions()}

    histories: defaultdict[str, list[HistoryCall]] = defaultdict(list)
    for client in clients:
        for session, call in client.calls:
            histories[session].append(call)
        for session, line in client.safe:
            histories[session].append(TimedCall(line, Write(line), 0.0, ended))
    for session, lines in last.items():
        end: HistoryCall = TimedCall("the end", Read(), ended + 1, ended + 2, lines)
        assert find_fault(DiaryModel(), [*histories[session], end]) is None, session
    assert count_answered(clients) > CLIENTS


def sessions() -> list[str]:
    return [f"diary-{number}" for number in range(SESSIONS)]


def count_answered(clients: list[Client]) -> int:
    return sum(client.statuses["asked 200"] for client in clients)


def is_everything_there(stack: Stack, clients: list[Client]) -> bool:
    safe = {(session, line) for client in clients for session, line in client.safe}
    lines = {(session, line) for session in sessions() for line in read_lines(stack, session)}
    return safe <= lines and stack.left_in_queues() == 0


def read_lines(stack: Stack, session: str) -> tuple[str, ...]:
    status, document = stack.ask(REGIONS[0], f"sessions/{session}")
    assert status == 200, document
    return tuple(document["state"].get("lines", ()))

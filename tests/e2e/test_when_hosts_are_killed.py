"""SIGKILL at random instants while messages are under way, and in each step of a purchase.

In its steps one death strikes many sessions, each held by the payment server at a point of its own.
The other region goes on with each, and the server's log tells what was done, and who asked for it.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.cloud import KEY
from local.testing.patience import until
from proof.bench.load import send
from proof.testbed.apps import compose_app
from proof.testbed.cloud import ROOT, running_cloud
from proof.testbed.faults import hosts_killed, region_down
from shared.domain.message import Message, Number, derive_id
from shared.settings import SESSIONS_SETTING
from tests.e2e.stack import REGIONS, Stack, assert_once_and_in_order, flights
from tests.payments import PaymentServer, payment_server
from tests.sizes import IS_PROOF

pytestmark = pytest.mark.e2e

APP = Path(__file__).parent / "paying"
# So many rounds at least, and further ones until as many kills have struck a region at work.
ROUNDS, KILLS_MIN, SESSIONS = (10, 3, 40) if IS_PROOF else (2, 1, 10)
ROUNDS_MAX = 20
SEED = 2013
WAVE = 5
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}
SETTINGS = DELAY | {
    "LOCKSTEP_LEASE_SECONDS": "10",
    # As long as a test may take until it has a handler at each point.
    "LOCKSTEP_HANDLER_SECONDS": "240",
    # So that one host has all of them.
    SESSIONS_SETTING: "16",
    "PYTHONPATH": str(ROOT),
}
# By step, what the server knows of it: see tests/payments.py.
WAYS = {"reserve": "asked", "charge": "keyed", "ship": "blind", "book": "asked", "thank": "keyed"}
STEPS = tuple(WAYS)
# Before the effect of a step and after it, and after all of them before the claim is ended.
ELEVEN = [*((step, when) for step in STEPS for when in ("before", "after")), ("ends", "after")]
THREE = [("reserve", "after"), ("charge", "before"), ("ship", "after")]
# What the server hears of the step that was under way. Of a blind one a person says what is in the
# server's log.
HEARD_AGAIN = {
    ("asked", "before"): ["look-up", "charge"],
    ("asked", "after"): ["look-up"],
    ("keyed", "before"): ["charge"],
    ("keyed", "after"): ["given again"],
    ("blind", "before"): ["charge"],
    ("blind", "after"): [],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentServer]:
    with payment_server(tmp_path_factory.mktemp("payments") / "log.jsonl") as server:
        yield server


@pytest.fixture(scope="module")
def stack(server: PaymentServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One cloud for all: each test has sessions of its own, and both regions at its end."""
    place = tmp_path_factory.mktemp("cloud")
    compose_app(APP, place / "app")
    settings = SETTINGS | {"PAYMENTS_URL": server.url}
    app = ("--app", str(place / "app"))
    with running_cloud(*app, logs=place / "logs", settings=settings) as cloud:
        yield Stack(cloud)


async def test_nothing_is_lost_doubled_or_reordered(stack: Stack) -> None:
    chance = random.Random(SEED)
    sent: dict[str, list[Message]] = {}
    kills: list[bool] = []
    while len(kills) < ROUNDS or (sum(kills) < KILLS_MIN and len(kills) < ROUNDS_MAX):
        done = WAVE * len(kills)
        sent = flights(SESSIONS, done + WAVE)
        wave = {session: own[done:] for session, own in sent.items()}
        sending = asyncio.create_task(stack.send(wave, **DELAY))
        kills.append(await asyncio.to_thread(kill_at_work, stack, chance))
        await sending
    await asyncio.to_thread(
        until, lambda: stack.left_in_queues() == 0, seconds=240, what="draining"
    )

    assert sum(kills) >= KILLS_MIN, "kills hit regions at work"
    entries = stack.entries()
    assert_once_and_in_order({session: entries[session] for session in sent}, sent)


def kill_at_work(stack: Stack, chance: random.Random) -> bool:
    """Let a region settle a few messages of the wave, kill its host and start another one.

    The answer is whether messages were waiting or locked in the region when the kill struck.
    """
    region = chance.choice(("east", "west"))
    goal = stack.completed(region) + chance.randrange(1, SESSIONS)
    until(lambda: stack.completed(region) >= goal, what=f"work in the {region}")
    stack.cloud.control.act(region, "kill")
    depth = stack.cloud.control.read_depths()[region]["lockstep"]
    stack.cloud.control.act(region, "start")
    return depth["active"] + depth["locked"] > 0


@pytest.mark.parametrize(
    ("death", "points"),
    [("host", ELEVEN), pytest.param("region", THREE, marks=pytest.mark.proof)],
    ids=["host", "region"],
)
def test_when_it_dies_in_a_step_the_other_region_goes_on_and_each_is_charged_once(
    death: str,
    points: list[tuple[str, str]],
    stack: Stack,
    server: PaymentServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_point = {f"{death}-{step}-{when}": (step, when) for step, when in points}
    blind = [name for name, (step, _) in at_point.items() if WAYS.get(step) == "blind"]
    messages = {name: buy(name, cents) for cents, name in enumerate(at_point, start=100)}
    server.hold({(name, step, when) for name, (step, when) in at_point.items()})
    put_copies(stack, "east", messages)
    until(lambda: not server.holds, what="a handler at each point")
    put_copies(stack, "west", messages)

    died_at = time.time()
    with lose(death, stack):
        monkeypatch.setenv("LOCKSTEP_URL", stack.cloud.contract["hosts"]["west"])
        monkeypatch.setenv("LOCKSTEP_KEY", KEY)
        others = messages.keys() - blind
        # The server's log is asked first, as that keeps no host from its work.
        until(lambda: have_ended(server) >= others, what="what needs nobody to decide")
        until(
            lambda: list_unknown(stack) | have_ended(server) >= messages.keys(),
            what="what a person has to decide",
        )
        assert list_unknown(stack) == set(blind)
        for name in blind:
            decide(stack, server, name, at_point[name][0])
        until(lambda: are_completed(stack, messages), what="the end of every purchase")
        entries = stack.entries()
    server.let_go()
    until(lambda: stack.left_in_queues() == 0, what="the copies of the region that died")

    assert stack.entries() == entries
    for name, (step, when) in at_point.items():
        head = entries[name][-1]
        charges = [one for one in server.lines(name) if one["event"] == "charge"]
        keys = {one["name"]: one["key"] for one in head["steps"]}
        body = json.loads(messages[name].body)
        assert [(one["step"], one["key"], one["body"]) for one in charges] == [
            (one, keys[one], body) for one in STEPS
        ]
        assert len(set(keys.values())) == len(STEPS)
        assert head["state"] == {"receipts": {one["step"]: one["receipt"] for one in charges}}
        west = [one for one in server.lines(name) if one["who"] == "west"]
        assert [(one["event"], one["step"]) for one in west] == heard_in_the_west(step, when)
        began, ended = (f"{west[at]['at'] - died_at:.1f} s" for at in (0, -1))
        sys.stdout.write(f"{name}: taken over after {began}, ended after {ended}\n")


def buy(session: str, cents: int) -> Message:
    body = json.dumps({"item": session, "cents": cents}).encode()
    return Message(derive_id(session), session, "buy", body, Number("paying", 0, 0))


def heard_in_the_west(step: str, when: str) -> list[tuple[str, str]]:
    """What the server is to hear of the region that goes on: all runs, steps and questions."""
    if step == "ends":
        return [("began", "began"), ("ends", "ends")]
    at = STEPS.index(step)
    # A run that finds a step unknown that only a person can decide ends there.
    runs = [("began", "began")] * (2 if WAYS[step] == "blind" else 1)
    again = [(event, step) for event in HEARD_AGAIN[WAYS[step], when]]
    return [*runs, *again, *(("charge", one) for one in STEPS[at + 1 :]), ("ends", "ends")]


def put_copies(stack: Stack, region: str, messages: dict[str, Message]) -> None:
    connection = stack.cloud.contract["servicebus"][region]
    send(connection, "lockstep", [[message] for message in messages.values()])


def lose(death: str, stack: Stack) -> AbstractContextManager[None]:
    """Lose the host of the east, or all that the region has."""
    control, (east, west) = stack.cloud.control, REGIONS
    if death == "host":
        return hosts_killed(control, east)
    return region_down(control, east, away=west, wait=lambda: None)


def have_ended(server: PaymentServer) -> set[str]:
    """The purchases of which the west has said that all their steps are done."""
    said = [(one["session"], one["event"], one["who"]) for one in server.lines()]
    return {session for session, event, who in said if (event, who) == ("ends", "west")}


def list_unknown(stack: Stack) -> set[str]:
    listed = stack.ask("west", "faults?kind=unknown")[1]["standstills"]
    return {one["session"] for one in listed}


def decide(stack: Stack, server: PaymentServer, session: str, step: str) -> None:
    """Say of a step what the server's log has of it, by the command line."""
    steps = {one["name"]: one["key"] for one in stack.entries()[session][-1]["steps"]}
    charge = server.find_charge(step, steps[step])
    words = ["happened", session, "--result", json.dumps(charge["receipt"])] if charge else []
    words = words or ["not-happened", session]
    assert main([*words, "--who", "Ada", "--why", "the server's log says so", "--yes"]) == 0


def are_completed(stack: Stack, sessions: Mapping[str, object]) -> bool:
    entries = stack.entries()
    return all(entries[one][-1]["status"] == "completed" for one in sessions)

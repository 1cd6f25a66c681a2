"""A release that changes a model is deployed under load, one region after the other.

`LOCKSTEP_OLD_APP` names a checkout to begin with, such as that of the release you run; without it
the old code is this checkout. The new code is always this one, with a new version of a model.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cli.folders import ROOT, package_app
from cli.regions import CONFIG
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from shared.domain.message import Message
from tests.e2e.stack import (
    REGIONS,
    Stack,
    assert_every_shot_is_told,
    effects,
    expect_effects,
    select_completed,
    shot,
    status,
)

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SESSIONS = [f"N{number:03d}" for number in range(16)]
GAMES = ["g0", "g1"]
EACH_WAVE = 4
WAVES_MAX = 60
# Later than any pause of a deployment, so that the other region finds the work done.
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "10"}
# In version 2 a field of the state has another name.
CHANGES = {
    "import Context, Handlers": "import Context, Handlers, StateModel",
    "    cancelled: int": "    cancellations: int",
    '{"cancelled": aircraft.cancelled + 1}': '{"cancellations": aircraft.cancellations + 1}',
    '@handlers.register("flight.status", state=Aircraft': """def upgrade(old, version):
    return Aircraft(cancellations=old.pop("cancelled"), **old)


AIRCRAFT = StateModel(Aircraft, version=2, upgrade=upgrade)


@handlers.register("flight.status", state=AIRCRAFT""",
}


def write_new_app(folder: Path) -> Path:
    """This checkout's app with a new version of a model."""
    package_app(ROOT, folder)
    module = folder / "functions/handlers/tracking.py"
    source = module.read_text("utf-8")
    for old, new in CHANGES.items():
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    module.write_text(source, encoding="utf-8")
    return folder


def roll(stack: Stack, folder: Path, app: Path) -> None:
    """Put an app in the place of the one before, of which who runs sees nothing, and restart.

    The other region comes first and the first one last, under load.
    """
    folder.rename(folder.with_name("before"))
    shutil.copytree(app, folder)
    for region in ("west", "east"):
        stack.cloud.control.act(region, "stop")
        stack.cloud.control.act(region, "start")
        began = stack.completed(region)
        until(partial(works, stack, region, began), what=f"work in {region}")


def works(stack: Stack, region: str, began: int) -> bool:
    return stack.completed(region) > began


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    old, folder = os.environ.get("LOCKSTEP_OLD_APP"), tmp_path / "app"
    package_app(ROOT, tmp_path / "old")
    shutil.copytree(old or tmp_path / "old", folder, ignore=shutil.ignore_patterns(".*"))
    config = ("--config", str(CONFIG))
    with running_cloud("--app", str(folder), *config, logs=tmp_path, settings=DELAY) as cloud:
        yield Stack(cloud)


def wave(number: int) -> dict[str, list[Message]]:
    """The next messages of every session: of some pure handlers, and of some with outputs."""
    first = number * EACH_WAVE
    flights = {s: [status(s, n) for n in range(first, first + EACH_WAVE)] for s in SESSIONS}
    shots = {game: [shot(game, number, number % 100)] for game in GAMES}
    return flights | shots


def done_in(stack: Stack, region: str) -> dict[str, int]:
    """What a region's namespace took and settled, by operation.

    Deliveries are not among it: what is on its way to a host that stops comes again.
    """
    operations = ("send", "complete", "abandon", "dead-letter", "expire-lock")
    ended = {operation: stack.ended(f"servicebus.{region}", operation) for operation in operations}
    return {operation: sum(ended[operation].values()) for operation in operations}


def kept_beside_entries(stack: Stack) -> Counter[str]:
    """How many documents of each kind but entries the journal has."""
    found = stack.search("SELECT c.kind FROM c WHERE c.kind != 'entry'")
    return Counter(document["kind"] for document in found)


async def test_every_message_has_one_effect_in_order_with_old_and_new_code_together(
    stack: Stack, tmp_path: Path
) -> None:
    new = write_new_app(tmp_path / "new")
    sent: dict[str, list[Message]] = {name: [] for name in (*SESSIONS, *GAMES)}

    async def send(number: int) -> None:
        messages = wave(number)
        await stack.send(messages, **DELAY)
        for name, own in messages.items():
            sent[name] += own

    await send(0)
    rolling = asyncio.create_task(asyncio.to_thread(roll, stack, tmp_path / "app", new))
    number = 1
    while not rolling.done() and number < WAVES_MAX:
        await send(number)
        number += 1
    await rolling
    await send(number)

    def is_quiet() -> bool:
        is_drained = not any(own[-1].get("parked") for own in stack.entries().values())
        return is_drained and stack.left_in_queues() == 0 and not stack.has_pending()

    await asyncio.to_thread(until, is_quiet, what="the end of the work")

    # P9: what old code could not read was left to the new code, and nothing else went wrong.
    assert stack.ask("east", "faults")[1]["standstills"] == []
    entries = stack.entries()
    # P1, P2, P3: each message has one effect, in order, and it is the message that was sent.
    assert {name: effects(entries[name]) for name in sent} == expect_effects(sent)
    for session in SESSIONS:
        last = select_completed(entries[session])[-1]
        assert last["model"] == ["Aircraft", 2]
        assert (last["state"]["events"], last["state"]["cancellations"]) == (len(sent[session]), 0)
        assert entries[session][0]["model"] == ["Aircraft", 1]
    # P4, P5: the outputs of every entry were sent, once each and in order.
    assert_every_shot_is_told(entries, {game: sent[game] for game in GAMES})
    # P7: no delivery was given back or lost, and a deployment has little sent again: outputs of
    # which a stopped host had no time to say that they were sent, and copies that a region took
    # later than a sender waits for it.
    outputs = sum(len(sent[game]) for game in GAMES)
    total = sum(map(len, sent.values())) + outputs
    depths = stack.cloud.control.read_depths()
    for region in REGIONS:
        done = done_in(stack, region)
        copies = done.pop("send") - sum(depths[region]["lockstep-errors"].values())
        assert total <= copies < total + outputs
        assert done == {"complete": copies, "abandon": 0, "dead-letter": 0, "expire-lock": 0}
    # P8: of each session a genesis and one cursor are kept, however many messages it had. Where
    # messages were parked, the end of its flag is there for a while.
    waiting = Counter(waiting=len(entries))
    assert kept_beside_entries(stack) - waiting == {"genesis": len(entries), "regions": 1}
    assert all(len(own[-1]["cursors"]) == 1 for own in entries.values())

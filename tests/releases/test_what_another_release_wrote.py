"""Journals and messages of other releases: this one goes on with them, or refuses them by name.

Old code on new data cannot be run here; that it would go on is shown by data with fields that this
release does not know.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.domain import wire
from shared.domain.errors import Misconfigured, OutcomeUnknown
from shared.domain.handler import Context, Handlers
from shared.domain.producer import Draft
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.ports import CreateDocument, Document, WriteResult
from tests.business import BusinessWorld, plain, swept
from tests.releases.record import DRAFTS, HERE, OPTIONS, SENT
from tests.world import REGIONS, Account, Amount, World, message

REFUSED = ("0.1.0", "2026-11-24")
RELEASES = sorted({path.stem for path in HERE.glob("*.json")} - set(REFUSED))
FIX = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", body=b'{"amount":-1}')


def recorded(release: str) -> dict[str, list[dict[str, Any]]]:
    return dict(json.loads(Path(HERE, f"{release}.json").read_text("utf-8")))


def as_written(document: Document) -> Document:
    return document


def by_a_later_release(document: Document) -> Document:
    """The same with a field more wherever a release may add one."""
    more: Document = {"added_later": {"why": ["nobody", "knows"]}}
    changed = document | more
    for part in ("message", "outbox"):
        if part in changed:
            changed[part] = changed[part] | more
    if "identities" in changed:
        changed["identities"] = [one | more for one in changed["identities"]]
    return changed


def world_with(release: str, change: Callable[[Document], Document] = as_written) -> World:
    """Two regions of this release on a journal of another one, long after that stopped."""
    world = BusinessWorld()
    for document in recorded(release)["documents"]:
        creation = CreateDocument(change(document), WriteResult.TAKEN)
        assert world.journal.store.apply(document["session"], [creation]) is WriteResult.CREATED
    world.clock.seconds += 1_000
    return world


@pytest.mark.parametrize("change", [as_written, by_a_later_release])
@pytest.mark.parametrize("release", RELEASES)
async def test_this_release_goes_on_with_every_session(
    release: str, change: Callable[[Document], Document]
) -> None:
    world = world_with(release, change)
    (billed,) = (d for d in recorded(release)["documents"] if "produced" in d)
    (batch,) = billed["outbox"]["batches"]

    assert isinstance(await world.east.consumer.consume(message(1, session="gap")), Processed)
    assert await world.west.consumer.consume(plain(0, "account.add")) == AlreadyDone()
    await world.west.resolver.resolve("halted", FIX)
    later = [Draft("later", "account.add", b'{"amount":3}')]
    published = await world.producer().publish("sent", later, OPTIONS)
    await swept(world)

    assert world.amounts("gap") == [1, 2, 3]
    assert world.amounts("halted") == [-1, 2]
    assert world.amounts("claimed") == [1]
    assert [m.number.sequence for m in published.messages if m.number] == [2]
    # The sweep brings what was missing, after what is newer: receivers go by the numbers.
    assert {m.id: m.body for m in world.bus.messages("west", "in")} == {
        draft.id: draft.body for draft in (*DRAFTS, *later)
    }
    sent = [(m["id"], m["body"].encode()) for m in batch["messages"]]
    assert [one for one in world.outputs("east") if one in sent] == sent
    assert await world.pending() == []
    # Every copy that comes late is recognised.
    for region in REGIONS:
        for n in range(3):
            copy = message(n, session="gap")
            assert await world.worker(region).consumer.consume(copy) == AlreadyDone()


@pytest.mark.parametrize("release", [*REFUSED, *RELEASES])
def test_this_release_reads_what_every_other_one_sends(release: str) -> None:
    for one in recorded(release)["messages"]:
        unknown = {wire.PREFIX + "addedlater": "what nobody knows"}
        read = wire.from_properties(one["properties"] | unknown, one["body"].encode())

        (same,) = (m for m in SENT if m.id == read.id and m.number == read.number)
        assert read.body == same.body
        assert wire.to_properties(read).items() >= one["properties"].items()


async def test_no_older_release_takes_a_state_for_none() -> None:
    """Releases so far begin anew where an entry has neither `state` nor `state_at`.

    So a state that is kept elsewhere needs a `state_at`, where they find none and wait.
    """
    handlers = Handlers()

    @handlers.register("account.grow", state=Account, body=Amount)
    def grow(account: Account, body: Amount, _: Context) -> Account:
        return Account(amounts=[*account.amounts, *range(body.amount)])

    world = World(handlers=handlers)
    for n, size in enumerate((1, 1_000, 100_000, 1)):
        await world.east.consumer.consume(message(n, size, kind="account.grow"))

    completed = [entry for entry in world.entries() if entry["status"] == "completed"]
    assert len(completed) == 4
    assert [entry["id"] for entry in completed if not entry.keys() & {"state", "state_at"}] == []


async def test_a_state_that_this_release_does_not_find_is_waited_for() -> None:
    world = World()
    await world.east.consumer.consume(message(0))
    (entry,) = world.entries()
    elsewhere = {name: value for name, value in entry.items() if name != "state"}
    world.journal.store.put("acc-7", elsewhere | {"state_at": 0})

    with pytest.raises(OutcomeUnknown):
        await world.worker("west").consumer.consume(message(1))
    assert len(world.entries()) == 1

    world.journal.store.put("acc-7", entry)
    await world.worker("west").consumer.consume(message(1))
    assert world.amounts() == [1, 2]


@pytest.mark.parametrize("release", REFUSED)
async def test_a_journal_of_an_older_release_is_refused_by_name(release: str) -> None:
    world = world_with(release)

    with pytest.raises(Misconfigured, match=r"older release .* docs/upgrade\.md"):
        await world.east.consumer.consume(message(1, session="owed"))

    assert len(world.entries("owed")) == 1


async def test_a_ledger_of_the_first_release_is_refused_by_name() -> None:
    with pytest.raises(Misconfigured, match=r"older release .* docs/upgrade\.md"):
        await world_with("0.1.0").producer().publish("sent", DRAFTS, OPTIONS)

"""A large state changes a little: only the change is written, and everybody reads the state."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import BaseModel

from functions.http.operate import find_session
from functions.http.watch import tell_state
from functions.page.page import find_changes
from proof.simulation.world.recorder import state_of
from shared.domain import next_entry
from shared.domain.errors import LockstepError, OutcomeUnknown
from shared.domain.handler import (
    Context,
    Handled,
    Handlers,
    Kind,
    OnFault,
    Output,
    StateModel,
)
from shared.domain.journal import Status
from shared.domain.message import Message, Number, home_region
from shared.domain.next_entry import STATE_KEPT_ENTRIES
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.ports import Document
from shared.storage import journal as storage
from shared.storage.documents import sequence_of
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, ProcessKilled
from tests.asking import ask
from tests.business import LEASE_OVER
from tests.crashes import rest
from tests.world import IMPATIENT, POLICY, REGIONS, SKIP, World, sequences, take

SESSION = "stock-1"
ERASE = ResolutionRequest(ResolutionAction.ERASE, "Ada", "asked to be forgotten")
PLACES = 40
LARGE = 2_000


class Place(BaseModel):
    """What lies somewhere."""

    left: int = 0
    label: str = "a place in a hall, with a text that makes it longer"


class Stock(BaseModel):
    """A large state, of which a message changes one place and a list that it adds to."""

    moves: int = 0
    places: dict[str, Place] = {}
    last: list[str] = []


class Move(BaseModel):
    """Something comes to a place, or leaves it."""

    place: int = 0
    by: int = 1


def moved(stock: Stock, move: Move) -> Stock:
    name = f"place-{move.place}"
    before = stock.places.get(name, Place())
    places = stock.places or {f"place-{n}": Place() for n in range(PLACES)}
    places = places | {name: before.model_copy(update={"left": before.left + move.by})}
    last = [*stock.last[-3:], f"{name}: {move.by}"]
    return stock.model_copy(update={"moves": stock.moves + 1, "places": places, "last": last})


def told(stock: Stock, move: Move, context: Context) -> Handled[Stock]:
    """Say what lies in the place now, and how it came about."""
    after = moved(stock, move)
    return Handled(after, (Output("stock.told", Stock(moves=after.moves, last=after.last)),))


def renew(stored: Mapping[str, Any], _: int) -> Stock:
    """Nothing changes but the version."""
    return Stock.model_validate(stored)


def handlers_of(version: int = 1) -> Handlers:
    handlers = Handlers()
    declared = StateModel(Stock, version, renew if version > 1 else None)

    @handlers.register("stock.move", state=declared, body=Move)
    def take_move(stock: Stock, body: Move, _: Context) -> Stock:
        return moved(stock, body)

    @handlers.register("stock.look", state=declared, body=Move)
    def look(stock: Stock, _: Move, __: Context) -> Stock:
        return stock

    @handlers.register("stock.lose", state=declared, body=Move, on_fault=OnFault.SKIP)
    def lose(_: Stock, __: Move, ___: Context) -> Stock:
        raise ArithmeticError("nothing is lost here")

    @handlers.register("stock.stop", state=declared, body=Move)
    def stop(_: Stock, __: Move, ___: Context) -> Stock:
        raise ArithmeticError("stop")

    for name, kind in {"tell": Kind.PURE, "repeat": Kind.DETERMINISTIC}.items():
        handlers.register(f"stock.{name}", state=declared, body=Move, kind=kind)(told)

    @handlers.register("stock.ask", state=declared, body=Move, kind=Kind.EFFECTFUL)
    async def ask(stock: Stock, body: Move, context: Context) -> Handled[Stock]:
        return told(stock, body, context)

    return handlers


@pytest.fixture(autouse=True)
def _large_is_smaller() -> Iterator[None]:
    """So that a hundred messages take no time."""
    with patch.object(next_entry, "STATE_INLINE_BYTES_MAX", LARGE):
        yield


@pytest.fixture
def world() -> World:
    return World(handlers=handlers_of(), policy=IMPATIENT)


def move(sequence: int, kind: str = "stock.move", place: int = 0, by: int = 1) -> Message:
    body = Move(place=place, by=by).model_dump_json().encode()
    return Message(f"move-{sequence}", SESSION, kind, body, Number("scanner", 0, sequence))


async def state(world: World) -> Mapping[str, Any]:
    """What a process that remembers nothing finds."""
    reader = world.worker("west").worker
    return (await reader.input_after(await reader.read_head(SESSION))).state


def wholes(world: World) -> list[int]:
    """The positions of the states that are kept whole."""
    return sorted(sequence_of(d["id"]) for d in world.documents("state", SESSION))


def changes(world: World) -> list[int]:
    """The number of operations in the change of each entry."""
    return [len(entry["change"]["operations"]) for entry in world.entries(SESSION)]


async def compact(world: World) -> None:
    """Compact the session when all of its entries are old."""
    world.clock.seconds += POLICY.retention_seconds + 1
    await world.worker(home_region(SESSION, REGIONS)).compactor.compact()


# When one place changes, what is written is small.


async def test_it_is_written_whole_once_and_each_entry_has_what_changed_since(
    world: World,
) -> None:
    await take(world.east, *(move(n, place=n) for n in range(4)))

    assert wholes(world) == [0]
    assert changes(world) == [0, 3, 5, 7]
    assert max(len(json.dumps(entry)) for entry in world.entries(SESSION)) < LARGE
    assert len(json.dumps(await state(world))) > LARGE
    assert (await state(world))["last"] == [f"place-{n}: 1" for n in range(4)]


async def test_a_change_that_is_a_large_part_of_it_is_written_whole(world: World) -> None:
    await take(world.east, *(move(n, place=n) for n in range(60)))

    first, second, *_ = wholes(world)
    assert (first, 0 < second < 10) == (0, True)
    largest = max(len(json.dumps(entry["change"])) for entry in world.entries(SESSION))
    assert largest <= len(json.dumps(await state(world))) / next_entry.CHANGE_PART
    assert (await state(world))["moves"] == 60


async def test_the_entries_that_build_on_one_whole_state_are_bounded(world: World) -> None:
    await take(world.east, *(move(n) for n in range(2 * STATE_KEPT_ENTRIES + 5)))

    assert wholes(world) == [0, STATE_KEPT_ENTRIES, 2 * STATE_KEPT_ENTRIES]


# When it is read, it is what it would be if each entry had it whole.


def arrivals(draw: Random, count: int) -> list[Message]:
    """Messages of every kind, some before their turn and some twice."""
    kinds = ("move", "move", "tell", "repeat", "ask", "look", "lose")
    sent = [
        move(n, f"stock.{draw.choice(kinds)}", draw.randrange(PLACES), draw.randrange(-5, 5))
        for n in range(count)
    ]
    sent += draw.sample(sent, count // 5)
    return sorted(sent, key=lambda one: sequences([one])[0] + draw.random() * 4)


async def run(seed: int, found: list[Any]) -> list[Document]:
    """Deliver everything, alone and together, to processes that remember and that do not."""
    draw = Random(seed)
    world = World(handlers=handlers_of(), policy=IMPATIENT)
    left = arrivals(draw, 40)
    workers = {"east": world.east, "west": world.west}
    while left:
        region = draw.choice(REGIONS)
        if draw.random() < 0.3:
            workers[region] = world.worker(region)
        size = draw.choice((1, 1, 4))
        batch, left = left[:size], left[size:]
        await asyncio.gather(*(workers[region].consumer.consume(one) for one in batch))
        found.append(await state(world))
    await rest(world)
    written = world.entries(SESSION)
    await compact(world)
    found += [await state(world), *(world.outputs(region) for region in REGIONS)]
    return [*written]


@pytest.mark.parametrize("seed", range(4))
async def test_it_is_the_same_as_without_changes(seed: int) -> None:
    short: list[Any] = []
    whole: list[Any] = []

    with patch.multiple(next_entry, STATE_KEPT_ENTRIES=7, CHANGE_PART=3):
        written = await run(seed, short)
        with patch.object(next_entry, "find_change", return_value=None):
            await run(seed, whole)

    assert sum(bool(entry["change"]["operations"]) for entry in written if "change" in entry) > 10
    assert [json.dumps(one, default=repr) for one in short] == [
        json.dumps(one, default=repr) for one in whole
    ]


async def test_when_its_worker_dies_the_next_one_starts_from_the_same_state(world: World) -> None:
    await take(world.east, move(0), move(1, place=1))
    world.journal.fault_plan.plan("replace", CallFault.KILLED_BEFORE)
    with suppress(ProcessKilled):
        await world.east.consumer.consume(move(2, "stock.ask", place=2))
    assert world.entries(SESSION)[-1]["status"] == Status.WORKING
    await take(world.worker("west"), move(3, place=3))
    world.clock.seconds += LEASE_OVER

    await rest(world)

    left = (await state(world))["places"]
    assert [left[f"place-{n}"]["left"] for n in range(5)] == [1, 1, 1, 1, 0]
    assert wholes(world) == [0]


async def test_when_outputs_are_made_again_they_are_the_same(world: World) -> None:
    await take(world.east, *(move(n, "stock.repeat", place=n) for n in range(3)))
    with world.without(*REGIONS):
        with suppress(LockstepError):
            await world.east.consumer.consume(move(3, "stock.repeat", place=3))
        assert len(world.outputs("east")) == 3
    await rest(world)

    (*_, last) = world.outputs("west")
    assert json.loads(last[1])["last"] == [f"place-{n}: 1" for n in range(4)]
    assert last == world.outputs("east")[-1]


@pytest.mark.parametrize("fault", CALL_ERRORS)
@pytest.mark.parametrize("name", ["append", "head", "entry"])
async def test_when_a_call_fails_every_change_has_its_whole_state(
    world: World, name: str, fault: CallFault
) -> None:
    await take(world.east, move(0), move(1, place=1))
    world.journal.fault_plan.plan(name, fault)
    worker = world.worker("east")
    for _ in range(2):
        with suppress(LockstepError):
            await worker.consumer.consume(move(2, place=2))

    left = (await state(world))["places"]
    assert [left[f"place-{n}"]["left"] for n in range(4)] == [1, 1, 1, 0]
    assert wholes(world) == [0]


# When the whole state is old, it stays for as long as an entry builds on it.


async def test_when_old_entries_are_compacted_the_whole_state_stays(world: World) -> None:
    await take(world.east, *(move(n) for n in range(30)))
    await compact(world)
    assert wholes(world) == [0]
    await take(world.worker("east"), *(move(n) for n in range(30, STATE_KEPT_ENTRIES + 2)))
    assert (await state(world))["moves"] == STATE_KEPT_ENTRIES + 2

    await compact(world)

    assert wholes(world) == [STATE_KEPT_ENTRIES]
    assert (await state(world))["moves"] == STATE_KEPT_ENTRIES + 2


async def test_when_a_session_is_erased_neither_whole_state_nor_change_is_left(
    world: World,
) -> None:
    await take(world.east, *(move(n, "stock.move", n, 481_516) for n in range(60)))
    partition = world.journal.partitions[SESSION]
    assert json.dumps(list(partition.values())).count("481516") > 60

    await world.east.resolver.resolve(SESSION, ERASE)

    assert "481516" not in json.dumps(list(partition.values()))
    assert wholes(world) == []
    await take(world.west, move(60))
    assert (await state(world))["moves"] == 1


# When a model or a person gives another state, it is written whole.


async def test_when_the_model_has_a_new_version_it_is_written_whole(world: World) -> None:
    await take(world.east, move(0), move(1))
    world.handlers = handlers_of(version=2)

    await take(world.worker("east"), move(2), move(3))

    assert wholes(world) == [0, 2]
    models = [entry.get("model") for entry in world.entries(SESSION)]
    assert models == [["Stock", 1], None, ["Stock", 2], None]
    assert (await state(world))["moves"] == 4


async def test_when_a_person_sets_it_nothing_builds_on_the_one_before(world: World) -> None:
    await take(world.east, move(0), move(1))
    given = dict(await state(world)) | {"moves": 700}
    decision = ResolutionRequest(
        ResolutionAction.SET_STATE, "Ada", "counted", body=json.dumps(given).encode()
    )

    await world.east.resolver.resolve(SESSION, decision)
    await take(world.west, move(2), move(3))

    assert wholes(world) == [0, 3]
    assert (await state(world))["moves"] == 702


# When somebody looks at the session, they see the state, and what each entry changed.


async def test_what_people_see_is_the_state(world: World) -> None:
    await take(world.east, move(0), move(1, place=1), move(2, "stock.lose"), move(3, "stock.look"))

    _, shown = await find_session(world.worker("west"), SESSION)
    read = {n: found for n in range(4) if (found := await world.journal.entry(SESSION, n))}
    changed = await find_changes(world.worker("west"), dict(read), range(4))

    assert shown["state"] == await state(world) == state_of(world.journal, SESSION)
    assert shown["head"]["state_at"] == 0
    assert [one["path"] for one in shown["head"]["change"]] == [
        "/moves",
        "/places/place-1/left",
        "/last/1",
    ]
    assert [[name for name, *_ in changed[n] or ()] for n in range(1, 4)] == [
        ["last", "moves", "places.place-1.left"],
        [],
        [],
    ]


async def test_a_state_that_changed_a_little_is_no_state_that_the_caller_has(world: World) -> None:
    tags = []
    for arriving in (move(0), move(1), move(2, "stock.lose"), move(3)):
        await take(world.east, arriving)
        request = ask(method="GET", route={"session": SESSION})
        answer = await tell_state(world.west, request)
        assert json.loads(answer.get_body())["state"] == await state(world)
        tags.append(answer.headers["ETag"])
        known = ask(method="GET", route={"session": SESSION}, headers={"If-None-Match": tags[-1]})
        assert (await tell_state(world.west, known)).status_code == 304

    assert tags == ['"0+"', '"1+"', '"1+"', '"3+"']


# When another release runs for a while, it takes no state for another one.


def read_as_before(document: Document, stored: Mapping[str, Any] | None) -> Document | None:
    """How a release that knows no changes reads a state beside its entry."""
    return document | {"state": stored["state"]} if stored else None


async def test_when_an_older_release_reads_it_it_waits(world: World) -> None:
    await take(world.east, move(0), move(1))

    with patch.object(storage, "with_state", read_as_before), pytest.raises(OutcomeUnknown):
        await take(world.worker("west"), move(2))

    assert len(world.entries(SESSION)) == 2
    await take(world.worker("west"), move(2))
    assert (await state(world))["moves"] == 3


async def test_when_an_older_release_carried_it_on_the_change_is_found(world: World) -> None:
    await take(world.east, move(0), move(1, place=1))
    await take(world.east, move(4), move(2, "stock.stop"))
    for entry in world.entries(SESSION)[2:]:
        # It passes over what it does not know, and does not write it.
        del entry["change"]
    await compact(world)

    worker: Services = world.worker("west")
    await worker.resolver.resolve(SESSION, SKIP)
    await take(worker, move(3, place=3))

    found = await state(world)
    assert found["moves"] == 4
    assert [found["places"][f"place-{n}"]["left"] for n in range(4)] == [2, 1, 0, 1]
    assert wholes(world) == [0]


async def test_what_an_older_release_wrote_whole_is_not_built_on(world: World) -> None:
    """It would remove such a state with its entry, and know of no other that needs it."""
    await take(world.east, move(0))
    (entry,), (stored,) = world.entries(SESSION), world.documents("state", SESSION)
    del entry["change"]
    stored["state"] = stored.pop("whole")

    await take(world.worker("east"), move(1), move(2))

    assert wholes(world) == [0, 1]
    assert (await state(world))["moves"] == 3

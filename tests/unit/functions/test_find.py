"""Find what an id names, and follow a message over sessions, over HTTP and on the page."""

import json
import re
from datetime import UTC, datetime
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from pydantic import BaseModel

from functions.handlers import shooting_range
from functions.handlers.orders import handlers as saga_handlers
from functions.http.find import NAMES_MAX, find_over_http, follow_over_http
from functions.http.follow import ENTRIES_MAX, HOPS_MAX
from functions.page.find import show_found, show_way
from functions.page.page import show_timeline
from shared.domain.errors import Unavailable
from shared.domain.following import OUTPUTS_MAX
from shared.domain.handler import OUTPUTS, Context, Handled, Handlers, Output
from shared.domain.message import Message
from shared.domain.spending import CURRENT
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas
from shared.storage.entries import position_id
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.asking import ask, document
from tests.world import World, handlers, in_place_of, message, require

orders = Handlers()


class Quantity(BaseModel):
    """How many of something."""

    of: int = 1


class Count(BaseModel):
    """What a session of these handlers remembers."""

    seen: int = 0


def count(state: Count, *outputs: Output) -> Handled[Count]:
    return Handled(Count(seen=state.seen + 1), outputs)


@orders.register("order.open", state=Count, body=Quantity)
def open_order(state: Count, body: Quantity, _: Context) -> Handled[Count]:
    """Take from the stock, and tell a queue of somebody else."""
    taken = [Output("stock.take", body, session="stock:<1>") for _ in range(max(1, body.of))]
    return count(state, *taken, Output("order.opened", body, to=OUTPUTS))


@orders.register("order.split", state=Count, body=Quantity)
def split(state: Count, body: Quantity, _: Context) -> Handled[Count]:
    """Open as many orders, each in a session of its own."""
    one = Quantity(of=2)
    return count(state, *(Output("order.open", one, session=f"order-{n}") for n in range(body.of)))


@orders.register("stock.take", state=Count, body=Quantity)
def take(state: Count, body: Quantity, _: Context) -> Handled[Count]:
    """Send a bill."""
    return count(state, Output("bill.send", body, session="bill:1"))


@orders.register("bill.send", state=Count, body=Quantity)
def bill(state: Count, body: Quantity, _: Context) -> Count:
    """Refuse what is free."""
    if body.of == 0:
        raise ArithmeticError("nothing is free")
    return Count(seen=state.seen + 1)


@orders.register("ping", state=Count, body=Quantity)
def ping(state: Count, body: Quantity, context: Context) -> Handled[Count]:
    """Go to another session and back for ever."""
    other = {"left": "right", "right": "left"}[context.message.session]
    return count(state, Output("ping", body, session=other))


def order(
    sequence: int, of: int = 1, kind: str = "order.open", session: str = "order:1"
) -> Message:
    sent = message(sequence, session=session, kind=kind, group="shop")
    return Message(sent.id, session, kind, json.dumps({"of": of}).encode(), number=sent.number)


async def pump(world: World, *sent: Message, rounds: int = 50) -> None:
    """Hand these messages to a worker, and what its own queue gets for them."""
    for one in sent:
        await world.east.consumer.consume(one)
    done = 0
    for _ in range(rounds):
        waiting = world.bus.messages("east", "in")[done:]
        done += len(waiting)
        for one in waiting:
            await world.east.consumer.consume(one)


async def get(route: Any, services: Services, **query: str) -> tuple[int, dict[str, Any]]:
    response = await route(services, ask(method="GET", path="/find", query=query))
    return response.status_code, document(response)


async def find(world: World, **query: str) -> dict[str, Any]:
    status, found = await get(find_over_http, world.west, **query)
    assert status == 200, found
    return found


async def follow(world: World, session: str, position: int, **query: str) -> dict[str, Any]:
    asked = {"session": session, "position": str(position), **query}
    status, found = await get(follow_over_http, world.west, **asked)
    assert status == 200, found
    return found


async def show(view: Any, services: Services, path: str, **query: str) -> str:
    response = await view(services, ask(method="GET", path=path, query=query))
    return str(response.get_body().decode())


def entries(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries that were found, or those of a way."""
    listed: list[dict[str, Any]] = found["hops"] if "hops" in found else found["entries"]
    return [one for one in listed if "status" in one]


def outputs(way: dict[str, Any], of: int = 0) -> list[dict[str, Any]]:
    """Return the outputs of one of a way's hops."""
    return [one["output"] for one in way["hops"] if one.get("before") == of]


def places(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(one["session"], one["position"]) for one in entries(found)]


def unnumbered(session: str, message_id: str) -> Message:
    at = datetime.fromtimestamp(EPOCH_SECONDS, UTC).isoformat()
    return Message(message_id, session, "account.add", b'{"amount":1}', time=at)


async def test_an_id_is_found_in_every_session_beside_names_that_begin_so() -> None:
    world = World()
    for session in ("7", "77", "other"):
        await world.east.consumer.consume(unnumbered(session, "7"))
        world.clock.seconds += 60
    await world.east.consumer.consume(unnumbered("other", "77"))

    found = await find(world, id="7")

    assert places(found) == [("other", 0), ("77", 0), ("7", 0)]
    (named,) = found["entries"][0]["messages"]
    assert (named["id"], named["type"]) == ("7", "account.add")
    assert found["sessions"] == ["7", "77"]
    assert (found["more"], found["unknown"], found["is_cut"]) == ([], {}, False)
    only = await find(world, id="7", session="77")
    assert (places(only), only["sessions"]) == ([("77", 0)], [])


async def test_more_than_is_asked_for_is_said() -> None:
    world = World()
    for number in range(NAMES_MAX + 1):
        await world.east.consumer.consume(unnumbered(f"m-{number:02}", "m"))

    found = await find(world, id="m", limit="3")

    assert (len(found["entries"]), len(found["sessions"])) == (3, NAMES_MAX)
    assert found["more"] == ["entries", "sessions"]
    text = await show(show_found, world.west, "/operate/find", id="m-0")
    assert "No entry names a message of this id" in text
    assert "This page cost 0.0 request units" in text


@pytest.mark.parametrize(
    "name", ["a'b\"c", "%", "*", "_", "<script>", "é😀", "a b/c?d", "\\", "{}"]
)
async def test_what_a_stranger_types_is_an_id_like_any_other(name: str) -> None:
    world = World()
    for one in (name, "a", "abc"):
        await world.east.consumer.consume(unnumbered(f"s {one}", one))

    assert places(await find(world, id=name)) == [(f"s {name}", 0)]
    text = await show(show_found, world.west, "/operate/find", id=f" {name} ")
    assert "1 entry of messages" in text
    assert "<script" not in text


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"id": ""},
        {"id": "x" * 10_000},
        {"id": "\ud800"},
        {"id": "a", "session": "x" * 10_000},
        {"id": "a", "units": "0"},
        {"id": "a", "units": "many"},
        {"id": "a", "limit": "101"},
        {"id": "a", "kind": "b"},
    ],
    ids=str,
)
async def test_what_is_no_id_is_refused_by_name(query: dict[str, str]) -> None:
    status, problem = await get(find_over_http, World().east, **query)

    assert (status, problem["type"]) == (400, "InvalidMessage")
    assert len(problem["detail"]) < 200


async def test_when_a_part_cannot_be_asked_the_rest_is_told() -> None:
    world = World()
    await world.east.consumer.consume(unnumbered("a", "m"))

    @in_place_of(world.journal.container, "find")
    async def refuse(search: Any, query: Any, clock: Any = None) -> Any:
        if "c.listed" in query.sql:
            raise Unavailable("no answer in 10 s")
        return await search(query, clock)

    found = await find(world, id="m")
    assert places(found) == [("a", 0)]
    assert found["unknown"] == {"sessions": "no answer in 10 s"}
    text = await show(show_found, world.west, "/operate/find", id="m")
    assert "The sessions could not be asked: no answer in 10 s" in text

    @in_place_of(world.journal.container, "find")
    async def refuse_all(_: Any, *__: Any) -> Any:
        raise Unavailable("no answer in 10 s")

    status, problem = await get(find_over_http, world.west, id="m")
    assert (status, problem["type"]) == (503, "Unavailable")


async def test_a_message_is_followed_over_sessions_from_its_middle_in_both_directions() -> None:
    world = World(handlers=orders)
    # The one that is looked for lies among many of its session's.
    await pump(world, *(order(n, 0 if n == 21 else 1) for n in range(40)))
    (start,) = [
        one["position"]
        for one in (await world_entries(world, "stock:<1>"))
        if json.loads(one["outbox"]["batches"][0]["messages"][0]["body"]) == {"of": 0}
    ]

    way = await follow(world, "stock:<1>", start)

    assert places(way) == [("order:1", 21), ("stock:<1>", start), ("bill:1", 21)]
    _, middle, last = entries(way)
    assert middle["cause"]["session"] == "order:1"
    assert middle["cause"]["position"] == 21
    assert [one["type"] for one in outputs(way)] == ["stock.take"]
    assert (last["status"], last["reason"]) == ("faulted", "ArithmeticError: nothing is free")
    assert way["left"] == []

    # From the first one, what goes to somebody else's queue is told as well.
    whole = await follow(world, "order:1", 21)
    told = {one["type"]: one.get("said") for one in outputs(whole)}
    assert told == {
        "stock.take": None,
        "order.opened": "sent to out, and this app has no entry of it",
    }


async def world_entries(world: World, session: str) -> list[dict[str, Any]]:
    return [one | {"position": int(one["id"])} for one in world.entries(session)]


async def test_from_an_id_in_a_log_to_the_entry_that_failed_it_is_one_link() -> None:
    world = World(handlers=orders)
    await pump(world, order(0, 0), order(1))
    lost = entries(await follow(world, "bill:1", 0))[-1]["messages"][0]["id"]

    text = await show(show_found, world.west, "/operate/find", id=lost)

    (target,) = [one for one in re.findall('href="([^"]*)"', text) if "#position-" in one]
    parts = urlsplit(unescape(target))
    assert parts.path.endswith("/operate/session")
    session = await show(
        show_timeline, world.west, "/operate/session", **dict(parse_qsl(parts.query))
    )
    assert f'id="{parts.fragment}"' in session
    assert "ArithmeticError: nothing is free" in session


async def test_the_way_is_a_picture_and_a_list_that_no_name_breaks_out_of() -> None:
    world = World(handlers=orders)
    await pump(world, order(0, 0))

    text = await show(show_way, world.west, "/operate/follow", session="order:1", position="0")

    picture = text[text.index("<svg viewBox") : text.index("</svg>")]
    assert "the way of a message over 3 sessions" in picture
    assert "stock:&lt;1&gt;" in picture
    assert "<1>" not in text
    # Three entries, the output for somebody else, and the report of the fault.
    assert picture.count("<circle") == 5
    assert "position 0: faulted" in picture
    assert "ArithmeticError: nothing is free" in text
    assert "Not shown" not in text
    assert "This page cost 0.0 request units" in text


async def test_a_message_that_goes_round_for_ever_is_followed_for_some_steps() -> None:
    world = World(handlers=orders)
    await pump(world, order(0, kind="ping", session="left"), rounds=2 * HOPS_MAX + 5)

    way = await follow(world, "left", HOPS_MAX // 2 + 1)

    assert len(entries(way)) == 2 * HOPS_MAX + 1
    assert len({*places(way)}) == len(entries(way))
    assert sorted(way["left"]) == [
        f"what came after {HOPS_MAX} hops is not told",
        f"what came before {HOPS_MAX} hops is not told",
    ]


async def test_more_entries_than_a_way_has_are_cut_with_a_word() -> None:
    world = World(handlers=orders)
    await pump(world, order(0, OUTPUTS_MAX, "order.split"))

    way = await follow(world, "order:1", 0)

    assert len(entries(way)) == ENTRIES_MAX
    assert way["left"] == [f"no more than {ENTRIES_MAX} entries are told"]


async def test_a_saga_is_found_by_how_its_key_begins() -> None:
    world = World(handlers=saga_handlers)
    placed = {"customer": "c", "lines": [{"product": "a", "quantity": 1}], "amount": 1}
    body = json.dumps(placed).encode()
    for key in ("order/1", "order/12", "trip/1"):
        started = await Sagas(world.east.consumer).start(key, "order.place", body)
        assert started.is_accepted, started

    assert (await find(world, id="order/1"))["sagas"] == ["order/1", "order/12"]
    text = await show(show_found, world.west, "/operate/find", id="order/12")
    assert "/operate/saga?key=order%2F12" in text


async def test_of_many_outputs_some_are_followed_and_the_rest_is_counted() -> None:
    world = World(handlers=orders)
    await pump(world, order(0, 100))

    way = await follow(world, "order:1", 0)

    assert len(outputs(way)) == OUTPUTS_MAX
    assert len(entries(way)) <= ENTRIES_MAX
    rest = 100 + 1 - OUTPUTS_MAX
    assert f"{rest} more outputs of position 0 of order:1 are not told" in way["left"]


async def test_outputs_that_are_made_again_are_followed_without_running_a_handler() -> None:
    world = World(handlers=Handlers.joined([shooting_range.handlers]))

    def shot(n: int, kind: str) -> Message:
        sent = message(n, session="game", kind=kind, group="shop")
        return Message(sent.id, "game", kind, b'{"position":5}', number=sent.number)

    await pump(world, shot(0, "range.move"), shot(1, "range.fire"))
    fired = next(iter(world.entries("game")[1:]))
    assert "rerun" in fired["outbox"]
    world.west.handlers.by_type.clear()

    way = await follow(world, "game", 1)

    assert places(way) == [("game", 1), ("game/score", 0)]
    (output,) = outputs(way)
    assert (output["type"], output["position"]) == ("range.hit", 0)
    assert entries(await follow(world, "game/score", 0))[0]["session"] == "game"


async def test_what_is_not_there_any_more_or_not_yet_is_said() -> None:
    world = World(handlers=orders)
    await pump(world, order(0), order(1), order(2))
    # As compaction leaves it: what is removed lies below everything that is not.
    for session in ("order:1", "bill:1"):
        for position in (0, 1):
            del world.journal.partitions[session][position_id(position)]
            world.journal.store.ids[session].remove(position_id(position))

    way = await follow(world, "stock:<1>", 0)

    (only,) = entries(way)
    assert only["cause"] == {"id": only["messages"][0]["id"], "session": "order:1"}
    assert outputs(way)[0]["said"] == "processed, and its entry was removed since"
    await world.east.consumer.consume(order(3))
    with world.without("west"):
        await world.east.consumer.consume(order(4))
    late, pending = [await follow(world, "order:1", position) for position in (3, 4)]
    assert outputs(late)[0]["said"] == "not processed yet"
    assert outputs(pending)[0]["said"] == "pending for west"


async def test_when_the_store_falls_silent_on_the_way_what_was_found_is_told() -> None:
    world = World(handlers=orders)
    await pump(world, order(0))

    @in_place_of(world.journal.container, "find")
    async def refuse(search: Any, query: Any, clock: Any = None) -> Any:
        if query.session in ("bill:1", "order:1"):
            raise Unavailable("no answer in 10 s")
        return await search(query, clock)

    way = await follow(world, "stock:<1>", 0)

    assert places(way) == [("stock:<1>", 0)]
    identity = entries(way)[0]["messages"][0]["id"]
    assert sorted(way["left"]) == [
        "session bill:1 could not be asked: no answer in 10 s",
        f"who sent {identity} could not be asked: no answer in 10 s",
    ]


@pytest.mark.parametrize("units", [1, 2, 3, 100])
async def test_a_way_that_costs_too_much_is_cut_and_nothing_is_said_that_is_not_known(
    units: int,
) -> None:
    world = World(handlers=orders)
    await pump(world, order(0), order(1), order(2))

    @in_place_of(world.journal.container, "find")
    async def charge(search: Any, query: Any, clock: Any = None) -> Any:
        spending = require(CURRENT.get())
        if spending.is_spent:
            return []
        spending.request_units += 2
        return await search(query, clock)

    way = await follow(world, "stock:<1>", 1, units=str(units))

    is_whole = places(way) == [("order:1", 1), ("stock:<1>", 1), ("bill:1", 1)]
    assert is_whole is (units > 2)
    cut = f"what follows would cost more than {units} request units"
    assert way["left"] == ([] if is_whole else [cut])
    for one in way["hops"]:
        assert "said" not in one.get("output", {})
        assert "position" in one.get("cause", {"position": 1})


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"session": "nobody", "position": "0"}, 404),
        ({"session": "", "position": "0"}, 400),
        ({"session": "acc-7", "position": "-1"}, 400),
        ({"session": "acc-7", "position": "0", "units": "10001"}, 400),
    ],
)
async def test_an_entry_that_is_not_there_is_not_followed(
    query: dict[str, str], status: int
) -> None:
    world = World(handlers=handlers)
    await world.east.consumer.consume(message(0))

    assert (await get(follow_over_http, world.east, **query))[0] == status

"""A state is large, or cannot be stored at all: nothing is lost, and the reason is told."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel

from shared.domain.errors import LockstepError
from shared.domain.handler import LEVELS_MAX, Context, Handlers, Kind
from shared.domain.message import Message, Number, home_region
from shared.domain.next_entry import STATE_INLINE_BYTES_MAX, STATE_KEPT_ENTRIES
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Faulted
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from tests.contract.container import nested
from tests.world import POLICY, REGIONS, Account, Amount, World, message, take

# When a state is large, it lies beside its entry: written when it changes, removed with it.

SESSION = "book-1"
LARGE = STATE_INLINE_BYTES_MAX + 1
handlers = Handlers()


class Page(BaseModel):
    """What is added to a book: so many times a letter."""

    letter: str = ""
    count: int = 0


class Book(BaseModel):
    """All of it."""

    text: str = ""


@handlers.register("page", state=Book, body=Page)
def add_page(book: Book, page: Page, _: Context) -> Book:
    """Add a page; an empty one changes nothing."""
    return Book(text=book.text + page.letter * page.count)


@pytest.fixture
def world() -> World:
    return World(handlers=handlers)


def page(sequence: int, letter: str = "", count: int = 0) -> Message:
    body = Page(letter=letter, count=count).model_dump_json().encode()
    return Message(f"page-{sequence}", SESSION, "page", body, Number("author", 0, sequence))


async def text(world: World) -> str:
    """What a process that remembers nothing finds."""
    reader = world.worker("west").worker
    return str((await reader.input_after(await reader.read_head(SESSION))).state["text"])


def states(world: World) -> list[int]:
    """The positions of the states that lie beside their entries."""
    kept = world.journal.partitions[SESSION].values()
    return sorted(int(d["id"].removeprefix("state-")) for d in kept if d["kind"] == "state")


async def test_it_is_written_once_for_each_change_and_found_by_a_new_process(world: World) -> None:
    pages = [("a", 3), ("b", LARGE), ("", 0), ("", 0), ("c", 1), ("", 0)]
    expected = ""

    for number, (letter, count) in enumerate(pages):
        await world.worker("east").consumer.consume(page(number, letter, count))
        expected += letter * count
        assert await text(world) == expected

    assert states(world) == [1, 4]
    own = ["state" in entry for entry in world.entries(SESSION)]
    assert own == [True, False, False, False, False, False]


async def test_the_entries_between_two_copies_of_a_kept_state_are_bounded(world: World) -> None:
    pages = (page(n) for n in range(1, 2 * STATE_KEPT_ENTRIES + 10))
    await take(world.east, page(0, "b", LARGE), *pages)
    assert states(world) == [0, STATE_KEPT_ENTRIES, 2 * STATE_KEPT_ENTRIES]

    await compact(world)

    assert states(world) == [2 * STATE_KEPT_ENTRIES]
    assert await text(world) == "b" * LARGE


async def compact(world: World) -> None:
    """Compact the session when all of its entries are old."""
    world.clock.seconds += POLICY.retention_seconds
    await world.worker(home_region(SESSION, REGIONS)).compactor.compact()


async def test_erasing_a_session_erases_it(world: World) -> None:
    await take(world.east, page(0, "b", LARGE), *(page(n, "c", 1) for n in range(1, 80)))

    decision = ResolutionRequest(ResolutionAction.ERASE, "ann", "she asked for it")
    await world.east.resolver.resolve(SESSION, decision)

    assert states(world) == []


async def test_an_entry_of_an_older_release_that_holds_it_is_read(world: World) -> None:
    await take(world.east, page(0, "b", LARGE), page(1))
    partition = world.journal.partitions[SESSION]
    first = partition["000000000000"]
    first |= {"state": partition.pop("state-000000000000")["whole"]}
    for entry in world.entries(SESSION):
        entry.pop("state_apart", None)
        del entry["change"]

    await world.worker("east").consumer.consume(page(2, "c", 1))

    assert await text(world) == "b" * LARGE + "c"


@pytest.mark.parametrize("fault", CALL_ERRORS)
@pytest.mark.parametrize("name", ["append", "head", "entry"])
async def test_when_a_call_fails_no_state_is_without_its_entry(
    world: World, name: str, fault: CallFault
) -> None:
    await take(world.east, page(0, "b", LARGE), page(1, "c", 1))
    world.journal.fault_plan.plan(name, fault)
    worker = world.worker("east")
    with suppress(LockstepError):
        await worker.consumer.consume(page(2, "d", 1))
    apart = [int(one["id"]) for one in world.entries(SESSION) if one.get("state_apart")]
    assert states(world) == apart
    await worker.consumer.consume(page(2, "d", 1))

    assert states(world) == [0, 1, 2]
    assert await text(world) == "b" * LARGE + "cd"


# When a result cannot be stored, its message is a fault with the reason.


class Anything(Account):
    """A state that holds whatever a handler puts into it."""

    kept: Any = None
    number: float = 0.0


# Of the levels of a document, the entry, its state and the field `kept` take two.
UNSTORABLE: dict[str, tuple[Callable[[], object], str]] = {
    "nested too deep": (lambda: nested(LEVELS_MAX - 1), "nested deeper than 128 levels"),
    "a whole number that is no double": (lambda: -(2**53) - 1, "beyond 2^53"),
    "one inside": (lambda: [{"deep": 10**17}], "beyond 2^53"),
    "a number of very many digits": (lambda: int("9" * 4_000), "beyond 2^53"),
    "infinite": (lambda: float("inf"), "JSON"),
    "not a number": (lambda: float("nan"), "JSON"),
    "larger than a batch": (lambda: "x" * 2_100_000, "bytes"),
}
STORABLE: dict[str, Callable[[], object]] = {
    "as deep as can be": lambda: nested(LEVELS_MAX - 2),
    "wide": lambda: [[]] * 1_000,
    "the largest whole number": lambda: 2**53,
    "many digits of text": lambda: "1" * 40,
}


def world_of(kept: Callable[[], object], kind: Kind) -> World:
    """A world whose handler keeps this in its state."""
    handlers = Handlers()

    def keep(account: Anything, body: Amount, _: Context) -> Anything:
        amounts = [*account.amounts, body.amount]
        value = kept()
        if isinstance(value, float):
            return Anything.model_construct(amounts=amounts, number=value)
        return Anything.model_construct(amounts=amounts, kept=value)

    handlers.register("account.add", state=Anything, body=Amount, kind=kind)(keep)
    return World(handlers=handlers)


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL])
@pytest.mark.parametrize("case", UNSTORABLE)
async def test_the_message_becomes_a_fault_at_once(case: str, kind: Kind) -> None:
    kept, reason = UNSTORABLE[case]
    world = world_of(kept, kind)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Faulted)
    assert reason in (outcome.entry.reason or "")
    assert len(world.bus.messages("east", "errors")) == 1
    assert world.entries()[-1]["message"]["body"] == '{"amount":1}'


@pytest.mark.parametrize("case", STORABLE)
async def test_whatever_the_store_takes_is_kept_as_it_is(case: str) -> None:
    kept = STORABLE[case]
    world = world_of(kept, Kind.PURE)

    await world.east.consumer.consume(message(0))

    assert world.entries()[-1]["state"]["kept"] == kept()

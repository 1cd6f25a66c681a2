"""A handler's result that the store will never take makes its message a fault, with the reason."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.domain.errors import NotStorable
from shared.domain.handler import LEVELS_MAX, Context, Handlers, Kind, require_storable
from shared.engine.consume.outcomes import Faulted
from tests.contract.container import nested
from tests.world import Account, Amount, World, message


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


def test_the_whole_document_counts() -> None:
    require_storable({"a": nested(LEVELS_MAX - 1)})
    with pytest.raises(NotStorable):
        require_storable({"a": nested(LEVELS_MAX)})

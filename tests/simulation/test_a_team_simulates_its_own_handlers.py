"""A team gives handlers, messages and what must never be, and gets seeds and few faults."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from functions.handlers import orders
from local.testing.patience import run_patiently
from proof.simulation.testing import FinalState, check, moment
from shared.domain.handler import HERE, Context, Handled, Handlers, Output
from shared.domain.message import Message
from tests.saga_stage import order

ROOT = Path(__file__).parents[2]


class Change(BaseModel):
    by: int


class Stock(BaseModel):
    left: int = 0
    changes: list[int] = []


handlers = Handlers()


@handlers.register("stock.change", state=Stock, body=Change)
def change(stock: Stock, body: Change, _: Context) -> Handled[Stock]:
    after = Stock(left=stock.left + body.by, changes=[*stock.changes, body.by])
    return Handled(after, (Output("stock.left", after),))


def changes(session: str, *by: int) -> list[Message]:
    return [
        Message(f"{session}-{n}", session, "stock.change", f'{{"by":{amount}}}'.encode())
        for n, amount in enumerate(by)
    ]


MESSAGES = [*changes("bolts", 10, -3, -4, -3), *changes("nuts", 5, -5)]


def is_all_sold(seen: FinalState) -> None:
    """Nothing is left, and both regions have all outputs."""
    assert {session: state["left"] for session, state in seen.states.items()} == {
        "bolts": 0,
        "nuts": 0,
    }
    assert seen.states["bolts"]["changes"] == [10, -3, -4, -3]
    assert bodies(seen.outputs["east"]["out"]) == bodies(seen.outputs["west"]["out"])


def bodies(messages: Sequence[Message]) -> list[tuple[str, bytes]]:
    """What was sent for which session; sessions are in no order among each other."""
    return sorted((message.session, message.body) for message in messages)


def test_handlers_that_keep_to_the_rules_pass_whatever_happens() -> None:
    assert check(handlers, MESSAGES, is_all_sold, seeds=range(20)) == 20


def test_an_invariant_that_does_not_hold_is_reported_with_its_seed() -> None:
    def is_something_left(seen: FinalState) -> None:
        assert seen.states["nuts"]["left"] != 0, "no nuts are left"

    with pytest.raises(AssertionError, match="invariant: no nuts are left") as raised:
        check(handlers, MESSAGES, is_something_left, seeds=[3])

    assert "repeat it with seeds=[3]" in str(raised.value)
    assert "no faults at all" in str(raised.value)


def test_a_handler_that_is_not_pure_is_found_out() -> None:
    impure = Handlers()
    runs: list[int] = []

    @impure.register("stock.change", state=Stock, body=Change)
    def counting(stock: Stock, body: Change, _: Context) -> Handled[Stock]:
        """Keep outside what should be in the state."""
        runs.append(body.by)
        return Handled(Stock(left=len(runs)), (Output("stock.left", Stock(left=stock.left)),))

    with pytest.raises(AssertionError, match="seed 0 with fair faults broke"):
        check(impure, MESSAGES, seeds=range(5), profile="fair")


ORDERS = [
    Message("goods", "stock:p", "stock.receive", b'{"quantity":10}'),
    Message("money", "account:ada", "account.deposit", b'{"amount":99}'),
    *(
        Message(key, f"saga:{key}", "order.place", order(("p", 6)).encode(), time=moment(0.0))
        for key in ("O-1", "O-2")
    ),
]


def nobody_has_half_an_order(seen: FinalState) -> None:
    """There are goods for one of two orders, which has them and is paid, or there is none."""
    ends = sorted(str(seen.states[f"saga:{key}"]["state"]) for key in ("O-1", "O-2"))
    assert ends in (["compensated", "compensated"], ["compensated", "completed"])
    is_sold = "completed" in ends
    assert seen.states["stock:p"]["left"] == (4 if is_sold else 10)
    assert bool(seen.states["account:ada"]["paid"]) is is_sold


def test_what_is_scheduled_an_hour_ahead_is_waited_for() -> None:
    late = Handlers()

    @late.register("stock.change", state=Stock, body=Change)
    def put_off(stock: Stock, body: Change, _: Context) -> Handled[Stock]:
        after = timedelta(hours=1)
        return Handled(stock, (Output("stock.late", Change(by=body.by), to=HERE, after=after),))

    @late.register("stock.late", state=Stock, body=Change)
    def take_late(stock: Stock, body: Change, _: Context) -> Stock:
        return Stock(left=stock.left + body.by)

    def is_taken(seen: FinalState) -> None:
        assert seen.states["nuts"]["left"] == 3

    sent = [replace(one, time=moment(0.0)) for one in changes("nuts", 5, -2)]
    assert check(late, sent, is_taken, seeds=[0]) == 1


def test_sagas_take_part_in_both_regions() -> None:
    assert check(orders.handlers, ORDERS, nobody_has_half_an_order, seeds=range(10)) == 10


def test_messages_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="two messages of session 'nuts' are 'nuts-0'"):
        check(handlers, [*MESSAGES, *changes("nuts", 1)])


@pytest.mark.slow
def test_the_fixture_is_the_function(tmp_path: Path) -> None:
    test = tmp_path / "test_stock.py"
    test.write_text(
        "from tests.simulation.test_a_team_simulates_its_own_handlers import MESSAGES, handlers\n"
        "def test_stock(simulation):\n"
        "    assert simulation(handlers, MESSAGES, seeds=range(2)) == 2\n"
    )

    run = run_patiently(
        [sys.executable, "-m", "pytest", "-q", "-p", "proof.simulation.plugin", str(test)],
        seconds=100,
        cwd=ROOT,
    )

    assert "1 passed" in run.stdout, run.stdout + run.stderr

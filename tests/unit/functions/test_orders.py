"""The participants of an order, one command at a time, and the plan that joins them."""

import json

import pytest

from functions.handlers import orders
from functions.handlers.orders import Line, Order, PlaceOrder, Reservation, place
from shared.domain.handler import Context, HandlerInput
from shared.domain.message import Message
from shared.domain.saga.plan import Plan, Stage, Wait
from shared.engine.handle.handle import run_pure
from shared.testkit import exercise, given


def after(kind: str, state: dict[str, object], **body: object) -> tuple[object, str | None]:
    """A participant's state after a command, and why it refused it."""
    message = Message("m", "s", kind, json.dumps(body).encode(), time="2026-01-01T00:00:00+00:00")
    handler = orders.handlers.of(kind)
    whole = handler.state.model.model_validate(state).model_dump(mode="json")
    result = run_pure(handler, HandlerInput(whole), message)
    return result.state, (result.answer or {}).get("refused")


STOCK = {"received": 100, "left": 40, "shipped": 0, "reserved": {"o-1": 60}}
ACCOUNT: dict[str, object] = {"balance": 7, "paid": 0}
BOTH = {"o-1": 60, "o-2": 40}


def of(order: str, quantity: int) -> dict[str, object]:
    """What is told of goods for an order."""
    return {"order": order, "quantity": quantity}


@pytest.mark.parametrize(
    ("kind", "state", "body", "expected", "refused"),
    [
        ("stock.receive", STOCK, {"quantity": 5}, {"received": 105, "left": 45}, None),
        ("stock.reserve", STOCK, of("o-2", 40), {"left": 0, "reserved": BOTH}, None),
        ("stock.reserve", STOCK, of("o-2", 41), {}, "40 left, 41 wanted"),
        ("stock.release", STOCK, of("o-1", 60), {"left": 100, "reserved": {}}, None),
        ("stock.release", STOCK, of("o-2", 60), {}, "nothing is reserved"),
        ("stock.ship", STOCK, of("o-1", 60), {"shipped": 60, "reserved": {}}, None),
        ("stock.ship", STOCK, of("o-2", 60), {}, "nothing is reserved"),
        ("account.deposit", ACCOUNT, {"amount": 5}, {"balance": 12}, None),
        ("account.charge", ACCOUNT, {"amount": 7}, {"balance": 0, "paid": 7}, None),
        ("account.charge", ACCOUNT, {"amount": 8}, {}, "7 left, 8 wanted"),
    ],
)
def test_goods_and_money_move_or_are_refused_and_stay(
    kind: str,
    state: dict[str, object],
    body: dict[str, object],
    expected: dict[str, object],
    refused: str | None,
) -> None:
    assert after(kind, dict(state), **body) == (state | expected, refused)


@pytest.mark.parametrize(
    ("kind", "status", "becomes"),
    [
        ("order.submit", "new", "submitted"),
        ("order.submit", "cancelled", None),
        ("order.submit", "completed", None),
        ("order.cancel", "submitted", "cancelled"),
        ("order.cancel", "completed", None),
        ("order.complete", "submitted", "completed"),
        ("order.complete", "cancelled", None),
    ],
)
def test_an_order_moves_on_or_says_why_it_does_not(
    kind: str, status: str, becomes: str | None
) -> None:
    body = {"customer": "ada", "amount": 5} if kind == "order.submit" else {}

    state, refused = after(kind, {"status": status}, **body)

    assert Order.model_validate(state).status == (becomes or status)
    assert refused == (None if becomes else f"the order is {status}")


def planned(**order: object) -> Plan:
    context = Context(Message("m", "saga:o-1", "order.place", b"{}"))
    return place(PlaceOrder.model_validate({"customer": "ada", "amount": 5, **order}), context)


def names(plan: Plan) -> list[list[str]]:
    """The names of a plan's steps, by stage; a wait stands for itself."""
    return [
        [part.name] if isinstance(part, Wait) else [step.name for step in part.steps]
        for part in plan.parts
    ]


def test_lines_of_one_product_are_one_reservation() -> None:
    lines = [Line(product=p, quantity=q) for p, q in (("p", 1), ("q", 2), ("p", 3))]

    assert names(planned(lines=lines)) == [
        ["submit"],
        ["reserve.p", "reserve.q"],
        ["charge"],
        ["ship.p", "ship.q"],
        ["complete"],
    ]
    assert orders.quantities(lines) == {"p": 4, "q": 2}


def test_only_an_order_that_needs_approval_waits_for_it() -> None:
    lines = [Line(product="p", quantity=1)]

    assert ["approval"] in names(planned(lines=lines, approval_seconds=60))
    assert ["approval"] not in names(planned(lines=lines))


def test_only_charging_is_final_and_all_before_it_can_be_undone() -> None:
    plan = planned(lines=[Line(product="p", quantity=1)])

    stages = [part for part in plan.parts if isinstance(part, Stage)]
    assert [stage.is_final for stage in stages] == [False, False, True, False, False]
    before = [step for stage in stages[:2] for step in stage.steps]
    assert all(step.undo is not None for step in before)
    assert Reservation.model_validate(before[1].do.body) == Reservation(order="o-1", quantity=1)


@pytest.mark.slow
def test_an_order_comes_to_the_same_whatever_happens_to_its_commands() -> None:
    reservation = {"order": "o-1", "quantity": 3}

    report = exercise(
        orders.handlers,
        [
            given("stock:bolt", "stock.receive", {"quantity": 5}),
            given("stock:bolt", "stock.reserve", reservation),
            given("account:ada", "account.deposit", {"amount": 10}),
            given("account:ada", "account.charge", {"amount": 7}),
            given("stock:bolt", "stock.ship", reservation),
        ],
    )

    assert report.state("stock:bolt") == {"received": 5, "left": 2, "shipped": 3, "reserved": {}}
    assert report.state("account:ada") == {"balance": 3, "paid": 7}
    assert report.faults == ()

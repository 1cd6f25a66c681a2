"""A session reminds itself through real queues, and cancels it, in an app with its own folder."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.folders import write_app
from cli.regions import CONFIG
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from tests.e2e.stack import Stack

pytestmark = pytest.mark.e2e

HANDLERS = """
from datetime import timedelta

from pydantic import BaseModel

from shared.domain.handler import Context, Handled, Handlers, Output

handlers = Handlers()


class Order(BaseModel):
    heard: list[str] = []


class Nothing(BaseModel):
    pass


def hear(order: Order, context: Context) -> Order:
    return Order(heard=[*order.heard, context.message.type])


@handlers.register("order.place", state=Order, body=Nothing)
def place(order: Order, body: Nothing, context: Context) -> Handled[Order]:
    late = Output("order.late", Nothing(), after=timedelta(seconds=60), reminder="payment")
    return Handled(hear(order, context), outputs=(late,))


@handlers.register("order.pay", state=Order, body=Nothing)
def pay(order: Order, body: Nothing, context: Context) -> Handled[Order]:
    return Handled(hear(order, context), cancels=("payment",))


@handlers.register("order.late", state=Order, body=Nothing)
def give_up(order: Order, body: Nothing, context: Context) -> Order:
    return hear(order, context)
"""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    write_app(tmp_path / "app")
    (tmp_path / "app/handlers/app.py").write_text(HANDLERS)
    config = ("--config", str(CONFIG))
    settings = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "1"}
    with running_cloud(
        "--app", str(tmp_path / "app"), *config, logs=tmp_path / "logs", settings=settings
    ) as cloud:
        yield Stack(cloud)


def scheduled(stack: Stack) -> list[int]:
    """How many messages of each region's own queue are to become visible later."""
    return [
        queues["lockstep"]["scheduled"] for queues in stack.cloud.control.read_depths().values()
    ]


@pytest.mark.proof
def test_a_reminder_comes_once_at_its_time_and_not_at_all_when_it_was_cancelled(
    stack: Stack,
) -> None:
    for session, kinds in (("unpaid", ["place"]), ("paid", ["place", "pay"])):
        for kind in kinds:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            path = f"sessions/{session}/messages?type=order.{kind}&time={now}"
            assert stack.ask("west", path, "POST", {})[0] == 202
    until(
        lambda: scheduled(stack) == [2, 2] and len(stack.entries().get("paid", [])) == 2,
        what="one scheduled copy for each order in each region",
    )

    until(
        lambda: scheduled(stack) == [0, 0] and stack.left_in_queues() == 0,
        what="the reminders' time",
    )

    entries = stack.entries()
    assert [entry["status"] for entry in entries["unpaid"]] == ["completed", "completed"]
    assert entries["unpaid"][-1]["state"] == {"heard": ["order.place", "order.late"]}
    assert [entry["status"] for entry in entries["paid"]] == ["completed", "completed", "skipped"]
    assert "'payment' was cancelled" in entries["paid"][-1]["reason"]
    assert entries["paid"][1]["state"] == {"heard": ["order.place", "order.pay"]}

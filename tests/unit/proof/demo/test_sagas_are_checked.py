"""The checks over sagas: journals of the in-memory twin hold, and each tampering is named."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from functions.handlers import orders
from proof.demo.checker import HeldMessage
from proof.demo.result import ExitStatus
from proof.demo.sagas.checker import SagaJournals
from proof.demo.sagas.report import SagaReport
from tests.saga_stage import Stage, Walk, order, stocked

type Documents = list[dict[str, Any]]


@pytest.fixture
async def documents() -> Documents:
    """One order completed, one sold out, one adopted by the other region."""
    stage = await stocked(Stage(orders.handlers), ["p"], 100)
    await stage.run("o-1", order(("p", 60)))
    await stage.clock.sleep(3)
    await stage.run("o-2", order(("p", 60)))
    await stage.start("o-3", order(("p", 10)))
    walk = await stage.walk("o-3")
    await stage.clock.sleep(5)
    await Walk(stage, "west", walk.saga).run()
    kept = [document for of in stage.journal.partitions.values() for document in of.values()]
    return copy.deepcopy(kept)


def broken(documents: Documents) -> list[str]:
    results = SagaJournals.of(documents).check(3, "east")
    return [result.label for result in results if result.is_broken]


def judged(documents: Documents, queued: Sequence[HeldMessage] = ()) -> SagaReport:
    """What is told of a run that was broken off."""
    journals = SagaJournals.of(documents, queued, is_over=False)
    checks = journals.check(3, "east")
    return SagaReport(checks, journals.read_sagas(), None, "east", stopped="nothing moved")


def last(documents: Documents, session: str) -> dict[str, Any]:
    entries = [d for d in documents if d["session"] == session and d["kind"] == "entry"]
    return max(entries, key=lambda entry: str(entry["id"]))


def stock(documents: Documents, *, left: int = 0, shipped: int = 0, **more: object) -> None:
    state = last(documents, "stock:p")["state"]
    state |= {"left": state["left"] + left, "shipped": state["shipped"] + shipped, **more}


def account(documents: Documents, *, balance: int = 0, paid: int = 0) -> None:
    state = last(documents, "account:ada")["state"]
    state |= {"balance": state["balance"] + balance, "paid": state["paid"] + paid}


def end(documents: Documents, key: str, **state: str) -> None:
    last(documents, key)["state"] |= state


def take_again(documents: Documents) -> None:
    documents.append(last(documents, "account:ada") | {"id": "000000000099"})


def start_again(documents: Documents) -> None:
    start = next(d for d in documents if d["session"] == "saga:o-1" and d["kind"] == "entry")
    documents.append(start | {"id": "-"})


def forget(documents: Documents) -> None:
    documents[:] = [d for d in documents if d["session"] != "saga:o-1"]


def leave_pending(documents: Documents) -> None:
    last(documents, "saga:o-1")["pending"] = ["west"]


def leave_running(documents: Documents) -> None:
    end(documents, "saga:o-3", state="running")


def keep_set_aside(documents: Documents) -> None:
    leave_running(documents)
    stock(documents, left=7, shipped=-10, reserved={"o-3": 3})


ENDED, STARTED = "every order completed or fully compensated", "orders started, once each"
STOCK, SHIPPED = "stock conserved", "shipped is what was ordered"
PAID, AGREE = "payments equal shipped orders", "orders agree with their sagas"
PENDING = "nothing pending"
# What is broken, by how it is done.
TAMPERED: Sequence[tuple[str, str, Callable[[Documents], None]]] = [
    ("a command was taken again", "commands", take_again),
    ("an order was started again", STARTED, start_again),
    ("an order was forgotten", STARTED, forget),
    ("more was shipped", STOCK, lambda d: stock(d, shipped=1)),
    ("some is held back", STOCK, lambda d: stock(d, reserved={"o-1": 0})),
    ("it was shipped for nobody", SHIPPED, lambda d: stock(d, left=-1, shipped=1)),
    ("more was charged", PAID, lambda d: account(d, balance=-1, paid=1)),
    ("money was lost", PAID, lambda d: account(d, balance=-1)),
    (
        "a compensation failed",
        ENDED,
        lambda d: end(d, "saga:o-2", state="compensation-failed"),
    ),
    ("a cancellation was forgotten", AGREE, lambda d: end(d, "order:o-2", status="submitted")),
]
# What is not finished where the run was broken off, and broken where it is over.
LEFT: Sequence[tuple[str, set[str], Callable[[Documents], None]]] = [
    ("an outbox is pending", {PENDING}, leave_pending),
    ("a saga is running", {ENDED, SHIPPED, PAID, AGREE}, leave_running),
    ("a running saga has set something aside", {ENDED, STOCK, PAID, AGREE}, keep_set_aside),
]


def test_sound_journals_hold(documents: Documents) -> None:
    results = {f.label: f.value for f in SagaJournals.of(documents).check(3, "east")}

    assert broken(documents) == []
    assert results[ENDED] == "2 completed, 1 compensated"
    assert results[STOCK] == "100 = 30 left + 70 shipped, in 1 products"
    assert results[PAID] == "20 paid, 20 shipped"
    assert results["begun in one region, ended in the other"].startswith("1, 1 of them")
    assert results["compensated because of"] == "1 reserve"


@pytest.mark.parametrize(("what", "label", "tamper"), TAMPERED, ids=[one[0] for one in TAMPERED])
def test_what_is_broken_is_named_also_where_the_run_was_broken_off(
    documents: Documents, what: str, label: str, tamper: Callable[[Documents], None]
) -> None:
    assert label not in broken(documents), what
    leave_pending(documents)
    tamper(documents)

    report = judged(documents)

    assert label in broken(documents)
    assert label in [one.label for one in report.results if one.is_broken]
    assert report.exit_status() is ExitStatus.BROKEN


@pytest.mark.parametrize(("what", "labels", "leave"), LEFT, ids=[one[0] for one in LEFT])
def test_what_may_still_come_is_broken_only_where_the_run_is_over(
    documents: Documents, what: str, labels: set[str], leave: Callable[[Documents], None]
) -> None:
    leave(documents)

    report = judged(documents)

    assert {one.label for one in report.results if one.is_unfinished} == labels, what
    assert report.exit_status() is ExitStatus.NOT_FINISHED
    assert report.page.headline == "The run did not finish"
    assert report.page.problems == []
    assert labels & {*broken(documents)}


def test_an_order_that_waits_in_a_queue_is_not_started_yet_and_not_lost(
    documents: Documents,
) -> None:
    forget(documents)

    started = {one.label: one for one in judged(documents, [HeldMessage("saga:o-1", "id")]).results}

    assert started[STARTED].is_unfinished
    assert started[PENDING].value.startswith("1 documents and messages")

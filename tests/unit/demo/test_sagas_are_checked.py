"""The checks over sagas: journals of the in-memory twin hold, and each tampering is named."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from demo.sagas.__main__ import parse_options
from demo.sagas.checker import SagaJournals, classify_reason
from demo.sagas.orders import CUSTOMERS, PRODUCTS, make_orders
from demo.sagas.report import SagaReport, draw_sagas, find_state
from functions.handlers import orders
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
    """The promises that are broken."""
    results = SagaJournals.of(documents).check(3, "east")
    return [result.label for result in results if result.is_good is False]


def last(documents: Documents, session: str) -> dict[str, Any]:
    """The newest entry of a session."""
    entries = [d for d in documents if d["session"] == session and d["kind"] == "entry"]
    return max(entries, key=lambda entry: str(entry["id"]))


def test_sound_journals_hold(documents: Documents) -> None:
    results = {f.label: f.value for f in SagaJournals.of(documents).check(3, "east")}

    assert broken(documents) == []
    assert results["every order completed or fully compensated"] == "2 completed, 1 compensated"
    assert results["stock conserved"] == "100 = 30 left + 70 shipped, in 1 products"
    assert results["payments equal shipped orders"] == "20 paid, 20 shipped"
    assert results["begun in one region, ended in the other"].startswith("1, 1 of them")
    assert results["compensated because of"] == "1 reserve"


def take_again(documents: Documents) -> None:
    documents.append(last(documents, "account:ada") | {"id": "000000000099"})


def start_again(documents: Documents) -> None:
    start = next(d for d in documents if d["session"] == "saga:o-1" and d["kind"] == "entry")
    documents.append(start | {"id": "-"})


def forget(documents: Documents) -> None:
    documents[:] = [d for d in documents if d["session"] != "saga:o-1"]


def ship_more(documents: Documents) -> None:
    last(documents, "stock:p")["state"]["shipped"] += 1


def ship_for_nobody(documents: Documents) -> None:
    last(documents, "stock:p")["state"]["left"] -= 1
    ship_more(documents)


def hold_back(documents: Documents) -> None:
    last(documents, "stock:p")["state"]["reserved"] = {"o-1": 0}


def charge_more(documents: Documents) -> None:
    state = last(documents, "account:ada")["state"]
    state |= {"balance": state["balance"] - 1, "paid": state["paid"] + 1}


def lose_money(documents: Documents) -> None:
    last(documents, "account:ada")["state"]["balance"] -= 1


def leave_running(documents: Documents) -> None:
    last(documents, "saga:o-3")["state"]["state"] = "running"


def fail_to_compensate(documents: Documents) -> None:
    last(documents, "saga:o-2")["state"]["state"] = "compensation-failed"


def forget_to_cancel(documents: Documents) -> None:
    last(documents, "order:o-2")["state"]["status"] = "submitted"


def leave_pending(documents: Documents) -> None:
    last(documents, "saga:o-1")["owing"] = ["west"]


@pytest.mark.parametrize(
    ("tamper", "label"),
    [
        (take_again, "commands"),
        (start_again, "orders started, once each"),
        (forget, "orders started, once each"),
        (ship_more, "stock conserved"),
        (hold_back, "stock conserved"),
        (ship_for_nobody, "shipped is what was ordered"),
        (charge_more, "payments equal shipped orders"),
        (lose_money, "payments equal shipped orders"),
        (leave_running, "every order completed or fully compensated"),
        (fail_to_compensate, "every order completed or fully compensated"),
        (forget_to_cancel, "orders agree with their sagas"),
        (leave_pending, "nothing pending"),
    ],
)
def test_what_is_broken_is_named(
    documents: Documents, tamper: Callable[[Documents], None], label: str
) -> None:
    tamper(documents)

    assert label in broken(documents)


def test_the_picture_follows_the_stores_clock(documents: Documents) -> None:
    sagas = {saga.key: saga for saga in SagaJournals.of(documents).read_sagas()}
    third = sagas["o-3"]

    assert find_state(third, third.started_at - 1) is None
    assert find_state(third, third.started_at + 4) == "running"
    assert find_state(third, third.started_at + 5) == "completed"
    drawn = draw_sagas(list(sagas.values()), (third.started_at, third.started_at + 2), "east")
    # A text for each bar, one for the outage and one for the whole chart.
    assert drawn.count("<title>") == 3 * 1 + 5 * 3 + 2 + 2
    assert "east is down" in drawn
    assert draw_sagas([], None, "east") == ""


@pytest.mark.slow
def test_the_report_says_what_was_found(documents: Documents, tmp_path: Any) -> None:
    journals = SagaJournals.of(documents)
    report = SagaReport(journals.check(3, "east"), journals.read_sagas(), None, "east")
    short = SagaReport(journals.check(4, "east"), journals.read_sagas(), None, "east")
    report.page.write(tmp_path / "report.html")

    assert list(report.lines())[-1] == "Every promise held"
    assert list(short.lines())[-1] == "A promise was broken"
    assert "BROKEN" in "".join(short.lines())
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_orders_are_the_same_for_a_seed_and_more_than_there_is() -> None:
    placed = make_orders(200, 1)

    assert placed == make_orders(200, 1) != make_orders(200, 2)
    assert {one.decision for one in placed} == {"", "approved", "rejected", "cancel"}
    lines = [line for one in placed for line in one.body["lines"]]
    assert {line["product"] for line in lines} == set(PRODUCTS)
    assert {one.body["customer"] for one in placed} == set(CUSTOMERS)
    assert sum(line["quantity"] for line in lines) > 2 * 25 * len(PRODUCTS)


@pytest.mark.parametrize(
    ("reason", "sort"),
    [
        ("reserve.product-01: 3 left, 5 wanted", "reserve"),
        ("approval: timeout:approval", "timeout approval"),
        ("approval: rejected", "rejected approval"),
        ("approval: cancelled", "cancellation"),
        ("charge: voided by its sender: cancelled", "cancellation"),
        ("charge: 1 left, 2 wanted", "charge"),
    ],
)
def test_reasons_are_sorted(reason: str, sort: str) -> None:
    assert classify_reason(reason) == sort


def test_the_command_line_is_read() -> None:
    asked = parse_options(["--orders", "20", "--rate", "2", "--no-kill"])

    assert (asked.orders, asked.rate, asked.seed, asked.kills) == (20, 2.0, 1, False)
    with pytest.raises(SystemExit):
        parse_options(["--rate", "0"])

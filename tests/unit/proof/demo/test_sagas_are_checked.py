"""The checks over sagas: journals of the in-memory twin hold, and each tampering is named."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from functions.handlers import orders
from proof.demo.checker import HeldMessage
from proof.demo.result import ExitStatus
from proof.demo.sagas import __main__ as sagas_demo
from proof.demo.sagas.__main__ import SagaRun, parse_options
from proof.demo.sagas.checker import SagaJournals, classify_reason
from proof.demo.sagas.orders import CUSTOMERS, PRODUCTS, make_orders
from proof.demo.sagas.report import SagaReport, draw_sagas, find_state
from proof.demo.waiting import STALLED_SECONDS, JournalWork
from proof.testbed.sampling import CloudSample, RegionSample
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
    return [result.label for result in results if result.is_broken]


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


def keep_set_aside(documents: Documents) -> None:
    leave_running(documents)
    stock = last(documents, "stock:p")["state"]
    stock |= {"left": stock["left"] + 7, "shipped": stock["shipped"] - 10, "reserved": {"o-3": 3}}


def judged(documents: Documents, queued: Sequence[HeldMessage] = ()) -> SagaReport:
    """What is told of a run that was broken off."""
    journals = SagaJournals.of(documents, queued, is_over=False)
    checks = journals.check(3, "east")
    return SagaReport(checks, journals.read_sagas(), None, "east", stopped="nothing moved")


@pytest.mark.parametrize(
    ("tamper", "labels"),
    [
        (leave_pending, {"nothing pending"}),
        (
            leave_running,
            {
                "every order completed or fully compensated",
                "shipped is what was ordered",
                "payments equal shipped orders",
                "orders agree with their sagas",
            },
        ),
        (
            keep_set_aside,
            {
                "every order completed or fully compensated",
                "stock conserved",
                "payments equal shipped orders",
                "orders agree with their sagas",
            },
        ),
    ],
)
def test_what_may_still_come_is_not_finished_where_the_run_was_broken_off(
    documents: Documents, tamper: Callable[[Documents], None], labels: set[str]
) -> None:
    tamper(documents)

    report = judged(documents)

    assert {one.label for one in report.results if one.is_unfinished} == labels
    assert report.exit_status() is ExitStatus.NOT_FINISHED
    text = "\n".join(report.lines())
    assert "The run did not finish\nnothing moved\n" in text
    assert "run it again" in text
    assert "BROKEN" not in text
    assert "very promise held" not in text + report.page.render()


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
        (fail_to_compensate, "every order completed or fully compensated"),
        (forget_to_cancel, "orders agree with their sagas"),
    ],
)
def test_what_nothing_that_comes_could_make_good_is_broken_where_the_run_was_broken_off(
    documents: Documents, tamper: Callable[[Documents], None], label: str
) -> None:
    leave_pending(documents)
    tamper(documents)

    report = judged(documents)

    assert label in [one.label for one in report.results if one.is_broken]
    assert report.exit_status() is ExitStatus.BROKEN


def test_an_order_that_waits_in_a_queue_is_not_started_yet_and_not_lost(
    documents: Documents,
) -> None:
    forget(documents)
    waiting = [HeldMessage("saga:o-1", "an id")]

    started = {one.label: one for one in judged(documents, waiting).results}

    assert started["orders started, once each"].is_unfinished
    assert started["nothing pending"].value.startswith("1 documents and messages")


@dataclass
class Town:
    """Two regions in virtual time, with so many open sagas at a time."""

    open_sagas: Callable[[float], int]
    work: Callable[[float], JournalWork]
    now: float = 0.0
    regions: tuple[str, ...] = ("east", "west")
    queue: str = "lockstep"
    contract: Any = field(default_factory=lambda: {"hosts": {}})
    control: Any = None

    def finish(self, monkeypatch: pytest.MonkeyPatch) -> str:
        region = RegionSample(True, True, waiting=0, scheduled=0, dead=0, settled=7)
        sample = CloudSample(0.0, dict.fromkeys(self.regions, region))
        monkeypatch.setattr(sagas_demo, "take_sample", lambda *_: sample)
        monkeypatch.setattr(sagas_demo, "read_work", lambda _: self.work(self.now))
        options = parse_options([])
        run = SagaRun(cast(Any, self), options, clock=lambda: self.now, sleep=self.sleep)
        run.client = cast(
            Any, SimpleNamespace(count_open_sagas=lambda _: self.open_sagas(self.now))
        )
        return run.finish()

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_sagas_are_waited_for_as_long_as_one_of_them_ends_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = STALLED_SECONDS - 10
    town = Town(
        open_sagas=lambda now: max(0, 5 - int(now // slow)),
        work=lambda now: JournalWork(max(0, 9 - int(now // slow)), 0),
    )

    assert town.finish(monkeypatch) == ""
    assert town.now >= 9 * slow


def test_sagas_that_stand_still_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(open_sagas=lambda _: 2, work=lambda _: JournalWork(0, 0))

    assert "nothing moved" in town.finish(monkeypatch)
    assert STALLED_SECONDS < town.now < STALLED_SECONDS + 10


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

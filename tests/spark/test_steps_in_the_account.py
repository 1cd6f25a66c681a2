"""The steps of a manifest as documents: one feed gets each, whatever the account does meanwhile."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.domain.errors import Throttled
from shared.storage.queries import shows_any_need
from shared.testkit.injected_faults import CallFault
from spark.job import steps as module
from spark.job.failures import JobRefused
from spark.job.steps import PATIENCE_SECONDS, AccountSteps
from spark.send.lanes import SentLanes
from spark.send.rows import SendCounts
from tests.spark.accounts import ROOT, ROUND_TRIP_SECONDS, Account, FaultyContainer

PLANNED = f"{ROOT}/steps/run=1/step=planned/step.json"


@pytest.fixture
def account() -> Account:
    return Account()


def test_of_many_feeds_one_gets_a_step_and_its_text_stays(account: Account) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: account.open_steps().create(PLANNED, f"{n}"), range(8)))

    assert won.count(True) == 1
    assert account.open_steps().read_text(PLANNED) == str(won.index(True))


def test_when_the_answer_of_a_create_is_lost_the_feed_knows_its_own_step(account: Account) -> None:
    account.faults.plan("write", CallFault.UNANSWERED)

    assert account.open_steps().create(PLANNED, "mine")

    assert account.faults.made == ["write", "write", "read"]
    assert account.open_steps().read_text(PLANNED) == "mine"


def test_when_the_answer_is_lost_of_a_create_that_came_too_late_the_step_is_the_others(
    account: Account,
) -> None:
    assert account.open_steps().create(PLANNED, "theirs")
    account.faults.plan("write", CallFault.UNANSWERED)

    assert not account.open_steps().create(PLANNED, "mine")
    assert account.open_steps().read_text(PLANNED) == "theirs"


def test_when_the_feed_dies_after_a_create_the_step_is_there_completely(account: Account) -> None:
    account.faults.plan("write", CallFault.KILLED_AFTER)
    with pytest.raises(BaseException, match="write"):
        account.open_steps().create(PLANNED, "mine")

    assert account.open_steps().read_text(PLANNED) == "mine"


@pytest.mark.parametrize("fault", [CallFault.REFUSED, CallFault.LOST, CallFault.UNANSWERED])
@pytest.mark.parametrize("call", ["write", "read", "find"])
def test_when_the_account_fails_for_a_while_each_call_is_made_again(
    account: Account, call: str, fault: CallFault
) -> None:
    account.open_steps().create(PLANNED, "theirs")
    account.faults.plan(call, fault, fault, fault)

    steps = account.open_steps()
    assert not steps.create(PLANNED, "mine")
    assert steps.read_text(PLANNED) == "theirs"
    assert steps.list_names(f"{ROOT}/steps") == ["run=000000001"]
    assert account.clock.now() < PATIENCE_SECONDS


def test_when_the_account_throttles_it_is_asked_again_after_as_long_as_it_says(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, waits = FaultyContainer.write, iter([9.0, 9.0])

    async def throttled(container: FaultyContainer, *arguments: Any) -> Any:
        for seconds in waits:
            raise Throttled("request rate is large", seconds)
        return await write(container, *arguments)

    monkeypatch.setattr(FaultyContainer, "write", throttled)

    assert account.open_steps().create(PLANNED, "mine")
    assert account.clock.now() >= 18


def test_when_the_account_stays_silent_the_feed_ends_by_its_name_and_goes_on_later(
    account: Account,
) -> None:
    account.faults.plan("write", *[CallFault.LOST] * 1000)

    with pytest.raises(JobRefused, match="an-account/lockstep/journal, which has the steps of abf"):
        account.open_steps().create(PLANNED, "mine")

    assert account.clock.now() >= PATIENCE_SECONDS
    account.faults.planned["write"].clear()
    assert account.open_steps().create(PLANNED, "mine")


def test_when_the_account_forbids_it_the_feed_does_not_wait(account: Account) -> None:
    account.faults.plan("write", CallFault.FORBIDDEN)

    with pytest.raises(JobRefused, match="an-account/lockstep/journal takes no steps"):
        account.open_steps().create(PLANNED, "mine")

    assert account.faults.made == ["write"]


def test_runs_are_read_in_their_order_and_from_a_run_on(account: Account) -> None:
    steps = account.open_steps()
    for run in (1, 2, 9, 10, 11, 100):
        assert steps.create(f"{ROOT}/steps/run={run}/step=planned/step.json", f"{run}")
    assert steps.create(f"{ROOT}/summaries/run=9/summary.json", "9")

    found = steps.list_names(f"{ROOT}/steps", 9)
    assert [int(name.removeprefix("run=")) for name in found] == [10, 11, 100]
    folders = [f"{ROOT}/steps/run={run}" for run in (10, 11, 100)]
    assert steps.read_texts(folders) == ["10", "11", "100"]
    assert steps.read_texts([]) == steps.list_names(f"{ROOT}/steps", 100) == []


def test_a_text_that_no_document_holds_is_kept_in_pieces(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_CHARACTERS", 10)
    place, text = f"{ROOT}/summaries/run=32/summary.json", "".join(map(str, range(100)))
    steps = account.open_steps()

    account.faults.plan("write", None, CallFault.UNANSWERED)
    assert steps.create(place, text)
    assert not steps.create(place, text[::-1])

    assert steps.read_text(place) == text
    assert steps.list_names(f"{ROOT}/summaries") == ["run=000000032"]
    assert max(len(json.dumps(each["text"])) for each in account.documents.values()) == 12
    steps.remove(f"{ROOT}/summaries/run=32")
    assert account.documents == {}


def test_two_manifests_in_one_account_know_nothing_of_each_other(account: Account) -> None:
    other = account.open_steps("hdfs://fed", "hdfs://fed")

    assert account.open_steps().create(PLANNED, "mine")
    assert other.create(PLANNED.replace(ROOT, "hdfs://fed"), "theirs")
    assert other.read_texts(["hdfs://fed/steps/run=1"]) == ["theirs"]
    assert account.open_steps().read_text(PLANNED) == "mine"


def test_a_manifest_that_was_moved_has_the_steps_of_its_name(account: Account) -> None:
    assert account.open_steps().create(PLANNED, "mine")

    moved = account.open_steps(ROOT, "/Volumes/fed")

    assert moved.read_text(PLANNED.replace(ROOT, "/Volumes/fed")) == "mine"


def test_neither_sweep_nor_session_finds_a_step(account: Account) -> None:
    steps = account.open_steps()
    steps.create(PLANNED, "mine")

    (document,) = account.documents.values()
    assert len(steps.partition) > 128, "no session can have the name"
    assert (document["kind"], document["manifest"]) == ("feed-step", ROOT)
    assert not shows_any_need(document)
    assert "ttl" not in document


def test_lanes_are_counted_once_and_kept_for_a_month(account: Account) -> None:
    lanes = SentLanes(account.open_steps(), f"{ROOT}/lanes/run=1", frozenset({0}))
    for lane, sent in enumerate((5, 7, 11)):
        lanes.record(lane, SendCounts(sent, pending=1))
    # A second attempt of its task.
    lanes.record(2, SendCounts(11, pending=0))

    assert lanes.count() == SendCounts(18, pending=2)
    assert replace(lanes, known=frozenset({0, 1, 2})).count() == SendCounts()
    account.clock.seconds += 31 * 24 * 3600
    assert lanes.count() == SendCounts()


@pytest.mark.proof
@pytest.mark.parametrize(
    "fault",
    [
        Fault("cosmos", Action.DROP_ANSWER, "batch", times=1),
        Fault("cosmos", Action.STATUS, "batch", status=429, times=3),
        Fault("cosmos", Action.STATUS, "batch", status=503, times=3),
        Fault("cosmos", Action.DELAY, seconds=ROUND_TRIP_SECONDS),
        Fault("cosmos", Action.SILENT, duration_seconds=4.0),
    ],
    ids=["no-answer", "throttled", "unavailable", "far", "silent"],
)
def test_when_a_real_account_fails_one_feed_gets_a_step_and_knows_it(
    cloud: Cloud, fault: Fault
) -> None:
    settings = {"Cosmos": cloud.cosmos.connection_string, "LOCKSTEP_JOURNAL_CALL_SECONDS": "2"}
    steps = AccountSteps.of(settings, f"{ROOT}/{fault.action}/{fault.status}", ROOT)
    cloud.faults.arm(fault)
    try:
        assert steps.create(PLANNED, "mine")
        assert not steps.create(PLANNED, "theirs")
        assert steps.read_texts([f"{ROOT}/steps/run=1"]) == ["mine"]
        steps.remove(f"{ROOT}/steps/run=1")
        assert steps.list_names(f"{ROOT}/steps") == []
    finally:
        cloud.faults.disarm()

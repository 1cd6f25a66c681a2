"""A manifest whose steps are documents: its folder says where they are, and what contradicts it is
refused.
"""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from local.cloud import Cloud
from shared.testkit.injected_faults import CallFault
from spark.feeding import manifest
from spark.feeding.manifest import MARK, Manifest, find_name
from spark.feeding.numbering import number_facts
from spark.job.failures import JobRefused
from spark.job.steps import IN_ACCOUNT, AccountSteps
from spark.send.arranging import find_lane
from tests.spark.accounts import Account
from tests.spark.bookings import GROUP, LINES, Bank, DriverKilled, fact, facts_of

NAME, HOST = "abfss://lake/fed", "east/lockstep/journal"


def mark(name: str = NAME, account: str = HOST, run: int | None = None) -> Row:
    return Row(**dict(zip(MARK.names, (name, account, run), strict=True)))


def test_the_name_of_a_manifest_is_the_path_by_which_it_was_begun() -> None:
    assert find_name([], NAME, HOST, "cosmos+abfss://lake/fed") == NAME
    assert find_name([mark(), mark()], "/Volumes/fed", HOST, "cosmos+/Volumes/fed") == NAME


def test_when_the_account_is_another_one_than_last_time_it_is_refused_by_both_names() -> None:
    with pytest.raises(JobRefused, match=f"are in {HOST}, and not in west/lockstep/journal, which"):
        find_name([mark()], NAME, "west/lockstep/journal", f"cosmos+{NAME}")


def test_when_the_steps_are_files_they_are_not_begun_again_in_the_account() -> None:
    with pytest.raises(JobRefused, match=r"the steps of cosmos.* are files: leave out 'cosmos"):
        find_name([mark(run=7)], NAME, HOST, f"cosmos+{NAME}")


def test_when_two_feeds_begin_a_manifest_under_two_names_both_names_are_told() -> None:
    with pytest.raises(JobRefused, match=f"named it differently: /Volumes/fed, {NAME}. Remove all"):
        find_name([mark("/Volumes/fed"), mark()], NAME, HOST, f"cosmos+{NAME}")


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    account = Account()

    def opened(_: object, name: str, root: str) -> AccountSteps:
        return account.open_steps(name, root)

    monkeypatch.setattr(AccountSteps, "of", opened)
    return account


def plan_of(spark: SparkSession, amount: int) -> DataFrame:
    return number_facts(facts_of(spark, [fact("a", "k", "01", amount)]), GROUP)


@pytest.mark.proof
def test_when_two_feeds_bind_the_same_run_in_the_account_the_second_is_refused(
    account: Account, spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "fed")
    first, second = (Manifest(spark, f"{IN_ACCOUNT}{place}") for _ in range(2))
    assert [first.read_history().newest, second.read_history().newest] == [0, 0]

    assert first.write_plan(1, plan_of(spark, 1)) == second.write_plan(1, plan_of(spark, 2)) == 1
    # The second one wins, and has no answer.
    account.faults.plan("write", CallFault.UNANSWERED)
    bound = second.bind(1, 1, None)
    with pytest.raises(JobRefused, match=f"in use: the feed {second.feed} has bound run 1 at "):
        first.bind(1, 1, None)

    later = Manifest(spark, f"{IN_ACCOUNT}{place}/")
    history = later.read_history()
    assert [step.feed for step in history.unsent] == [bound.feed] == [second.feed]
    assert [row["body"] for row in later.read_fed(GROUP, history).collect()] == ['{"amount":2}']
    marks = [json.loads(file.read_text()) for file in (tmp_path / "fed/steps").glob("part-*")]
    assert marks == [{"manifest": place, "account": account.address}]
    # Any feed that takes the steps for files, also of an older release, is told what the folder is.
    with pytest.raises(JobRefused, match=r"steps holds other files. If its steps are in the acco"):
        Manifest(spark, place).read_history()

    # The folder is gone, but not the numbers that were used by it.
    shutil.rmtree(place)
    with pytest.raises(JobRefused, match=r"has the steps of .*, but nothing in that folder says"):
        Manifest(spark, f"{IN_ACCOUNT}{place}").read_history()


@pytest.fixture
def booked(spark: SparkSession, tmp_path: Path, sink: Path, cloud: Cloud) -> Bank:
    """Feeds whose steps, and what their tasks have sent, are in an account on this machine."""
    assert sink.exists()
    return Bank(spark, tmp_path, {"Cosmos": cloud.cosmos.connection_string}, IN_ACCOUNT)


@pytest.mark.proof
def test_runs_are_fed_resumed_and_summed_up_by_steps_in_the_account(
    booked: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SUMMARISED_RUNS", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "mark_sent", die)
        with pytest.raises(DriverKilled):
            booked.feed(LINES, lanes=2)
    assert len(booked.sent()) == 9

    # All lanes are recorded by their tasks, so none is sent again.
    again = booked.feed(LINES)
    assert (again.resumed, again.standings["unchanged"], booked.sent()) == (0, 9, [])
    for amount in range(1, 5):
        lines = [LINES[0].replace(",0,2", f",{amount},2"), *LINES[1:]]
        assert booked.feed(lines).counts.sent == 1
        assert booked.sent() == [("acc-0", 2 + amount, f'{{"amount":{amount}}}')]

    history = booked.history
    assert (history.newest, history.summarised, history.unsent) == (6, 6, [])
    assert booked.manifest.list_runs("summaries") == [4, 6]
    assert booked.manifest.read_fed("bank", history).count() == 13


@pytest.mark.proof
def test_when_a_task_has_sent_its_lane_and_the_driver_dies_the_other_lanes_are_sent(
    booked: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "mark_sent", die)
        with pytest.raises(DriverKilled):
            booked.feed(LINES, lanes=3)
    booked.sent()
    step, manifest = booked.history.unsent[0], booked.manifest
    assert manifest.list_sent_lanes(step) == [0, 1, 2]
    manifest.steps.remove(f"{manifest.locate_lanes(step)}/lane=1")
    plan = manifest.read_plan(step).where(find_lane(3) == 1).orderBy("session", "sequence")
    left = [(row["session"], row["sequence"], row["body"]) for row in plan.collect()]

    assert booked.feed(LINES).resumed == len(left) > 0
    assert booked.sent() == left


def die(*_: object) -> None:
    raise DriverKilled

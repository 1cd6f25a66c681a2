"""A bound run that cannot be sent stops its own group only, until it is set aside on the record."""

import json
from dataclasses import replace
from functools import partial

import pytest

from shared.domain.errors import InvalidOptions
from spark import feed, replay
from spark.feeding import FeedConfig
from spark.feeding.manifest import Manifest
from spark.feeding.numbering import number_facts
from spark.job.failures import JobRefused
from spark.send.datasource import EventWriter
from tests.spark.bookings import GROUP, LINES, Bank, fact, facts_of
from tests.spark.recording import RecordingDataSource

WHO, WHY = "Ann", "a saga's session"


def bind_poison(bank: Bank, group: str = GROUP) -> None:
    """A run as an older release has bound it: nobody can send one of its events."""
    facts = [fact("saga:1", "k0", "00", 0), fact("acc-0", "k1", "01", 1)]
    plan = number_facts(facts_of(bank.spark, facts), group)
    manifest = bank.manifest
    run = bank.history.newest + 1
    manifest.bind(run, manifest.write_plan(run, plan), None, group=group, source="old", lanes=1)


@pytest.mark.proof
def test_when_a_run_of_another_group_cannot_be_sent_the_own_group_goes_on(bank: Bank) -> None:
    bind_poison(bank, "other")

    told = bank.feed(LINES)

    assert (told.resumed, told.counts.sent, len(bank.sent())) == (0, 9, 9)
    assert [(step.run, step.group) for step in bank.history.unsent] == [(1, "other")]


def test_when_a_run_is_set_aside_its_numbers_stay_bound_and_what_can_be_sent_is_replayed(
    bank: Bank,
    recorded_here: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bind_poison(bank)
    with pytest.raises(Exception, match="is a saga's: it takes nothing from outside"):
        bank.feed(LINES)
    bank.sent()

    told = bank.feed(LINES, set_aside=1, who=WHO, why=WHY)

    assert (told.resumed, told.counts.sent) == (0, 9)
    # The number of the run that was set aside is not given again.
    assert [number for session, number, _ in bank.sent() if session == "acc-0"] == [1, 2, 3]
    assert bank.history.unsent == []
    step = next(step for step in bank.history.steps if step.step == "set-aside")
    assert (step.run, step.group, step.who, step.why) == (1, GROUP, WHO, WHY)
    files = (bank.folder / "manifest/aside/run=1").glob("part-*.json")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(line["session"], line["sent"], line["first"], line["last"]) for line in lines] == [
        ("acc-0", False, 0, 0),
        ("saga:1", False, 0, 0),
    ]
    assert "is a saga's" in lines[1]["refusal"]

    writer = partial(EventWriter, source=RecordingDataSource)
    monkeypatch.setattr(replay, "EventWriter", writer)
    words = [f"--manifest={bank.folder / 'manifest'}", f"--group={GROUP}"]
    status = replay.main([*words, "--session=acc-0", "--session=saga:1"])

    assert status == 2
    assert ("acc-0", 0, '{"amount":1}') in bank.sent()
    assert "1 of the events chosen cannot be sent, for example: session" in capsys.readouterr().err


def test_only_an_unfinished_run_is_set_aside_and_by_somebody_for_a_reason(
    bank: Bank, capsys: pytest.CaptureFixture[str]
) -> None:
    bind_poison(bank, "other")
    with pytest.raises(JobRefused, match=r"run 1 is no unfinished run of bank .*unfinished: none"):
        bank.feed(LINES, set_aside=1, who=WHO, why=WHY)
    with pytest.raises(InvalidOptions, match="sets a run aside, for a reason"):
        FeedConfig(GROUP, "manifest", set_aside=1, who=WHO)
    with pytest.raises(InvalidOptions, match="set_aside would have no effect without a manifest"):
        FeedConfig(GROUP, set_aside=1, who=WHO, why=WHY)

    base = ["--source=s", "--mapping=m", "--group=g"]
    for words, complaint in (
        (["--set-aside=1"], "--set-aside would have no effect without --manifest"),
        (["--manifest=m", "--set-aside=1", "--who=Ann"], "--set-aside needs --who and --why"),
        (["--why=x"], "no effect without --set-aside"),
    ):
        with pytest.raises(SystemExit):
            feed.main([*base, *words])
        assert complaint in capsys.readouterr().err


@pytest.mark.proof
def test_lanes_that_were_sent_are_on_the_record_of_a_run_that_is_set_aside(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Manifest, "mark_sent", lambda *_: None)
    bank.feed(LINES, lanes=1)
    (left,) = bank.history.unsent
    bank.manifest.mark_lane_sent(left, 0)

    assert bank.manifest.set_aside(left, WHO, WHY) == (9, 9)
    assert bank.manifest.set_aside(replace(left, lanes=None), WHO, WHY) == (0, 9)

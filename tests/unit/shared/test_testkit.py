"""The test kit finds handlers that do not keep what they promise, and says what to do."""

import random
import re
import secrets
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.domain.handler import Context, Handled, Handlers, Kind, NoState, OnFault, Output
from shared.engine.consume.outcomes import Answered, Failed
from shared.testkit import Found, asked, exercise, given
from shared.testkit.exercise import fault_plans
from shared.testkit.given import as_sent
from shared.testkit.injected_faults import PASSING_FAULTS, CallFault, FaultPlan
from shared.testkit.regions import TwoRegions
from tests.strange import FAILED_AT, RAISED, STRANGE, fail
from tests.unit.shared import suspects
from tests.unit.shared.suspects import Note, Stamped, good, of, telling, three
from tests.world import Account, Amount


@pytest.mark.parametrize(
    ("find", "culprit", "advice"),
    [
        (uuid.uuid4, "uuid.uuid4()", "context.new_id()"),
        (lambda: random.randint(1, 6), "random.randint()", "context.random"),
        (secrets.token_hex, "secrets.token_bytes()", "context.random"),
        (lambda: datetime.now(UTC), "datetime.now()", "context.now"),
        (Stamped, "uuid.uuid4()", "context.new_id()"),
        (lambda: next(open(__file__)), "open()", "context.captured"),  # noqa: PTH123, SIM115
        (lambda: hash("text"), "hash()", "hashlib"),
    ],
)
@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC])
def test_what_differs_from_run_to_run_is_named_with_what_to_use_instead(
    find: Callable[[], object], culprit: str, advice: str, kind: Kind
) -> None:
    with pytest.raises(Found) as found:
        exercise(of(telling(find), kind), three())

    assert "message 1 of 'acc-7' (add) calls" in str(found.value)
    assert culprit in str(found.value)
    assert advice in str(found.value)


HERE_ALONE: dict[str, Any] = {"hash_seeds": ()}


@pytest.mark.parametrize(
    ("handlers", "options", "said"),
    [
        (of(suspects.changing_the_state), HERE_ALONE, "changes the state it was given, from {'amo"),
        (of(suspects.changing_the_body), HERE_ALONE, "changes the body it was given, from {'amou"),
        (of(suspects.counting), HERE_ALONE, "gives something else when it runs a second time"),
        (of(suspects.remembering), HERE_ALONE, "something else when it runs again after the other"),
        (suspects.listers, {}, "gives other bytes in another process"),
        (of(suspects.in_the_machines_zone), HERE_ALONE, "asks the machine for its time zone: here"),
    ],
)
def test_a_handler_that_rests_on_what_is_not_given_to_it_is_found_out(
    handlers: Handlers, options: dict[str, Any], said: str
) -> None:
    suspects.remembered.clear()

    with pytest.raises(Found) as found:
        exercise(handlers, three(), **options)

    assert said in str(found.value)


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC])
def test_a_good_handler_passes_hundreds_of_runs(kind: Kind) -> None:
    report = exercise(of(good, kind), three(), runs_max=200, hash_seeds=())

    assert report.runs > 100
    assert report.state("acc-7") == {"amounts": [1, 2, 3]}
    assert len(report.outputs("note")) == len({note["text"] for note in report.outputs()}) == 3
    assert report.outputs("other") == []
    with pytest.raises(KeyError, match="no session 'acc-9' among"):
        report.state("acc-9")
    assert report.faults == ()


def test_an_effectful_handler_may_call_more_than_once_but_has_one_effect_in_the_journal() -> None:
    outside = suspects.Outside([])

    report = exercise(of(suspects.effectful(outside), Kind.EFFECTFUL), three(), runs_max=100)

    assert report.state("acc-7") == {"amounts": [1, 2, 3]}
    assert [note["text"] for note in report.outputs()] == ["told 1", "told 2", "told 3"]
    assert len(outside.told) > 3 * report.runs


def test_the_disturbance_and_the_difference_are_named_where_outputs_differ() -> None:
    with pytest.raises(Found) as found:
        exercise(of(suspects.counting, Kind.EFFECTFUL), three())

    text = str(found.value)
    assert text.startswith("when only the other region takes them: in queue 'out' of region east,")
    assert "output 1 is note" in text
    assert "undisturbed it is note" in text


def test_a_fault_is_named_with_the_call_the_way_and_the_message() -> None:
    handlers = of(suspects.Forgetful(calls=180), Kind.EFFECTFUL)

    with pytest.raises(Found) as found:
        exercise(handlers, three())

    during = r"when, during (message \d of 'acc-7' \(add\)|the sweep), "
    assert re.match(during + r"call \d+ of the store or the bus \(\S+\) was ", str(found.value))
    assert "the state of 'acc-7' is" in str(found.value)


@pytest.mark.parametrize(("on_fault", "count"), [(OnFault.HALT, 1), (OnFault.SKIP, 3)])
def test_faults_are_part_of_the_report(on_fault: OnFault, count: int) -> None:
    handlers = Handlers()
    handlers.register("add", body=Amount, on_fault=on_fault)(suspects.failing)

    place = r"tests/unit/shared/suspects\.py:\d+ in failing"
    with pytest.raises(
        Found, match=f"a fault: ArithmeticError: cannot take 1, raised at {place}; where that"
    ):
        exercise(handlers, three())
    report = exercise(handlers, three(), faults=True)

    assert [fault.session for fault in report.faults] == ["acc-7"] * count
    assert report.faults[0].reason == "ArithmeticError: cannot take 1"


@STRANGE
@pytest.mark.parametrize("kind", Kind)
def test_what_is_no_exception_is_found_as_a_fault_and_ends_no_test(raised: str, kind: Kind) -> None:
    handlers = Handlers()

    def failing(state: NoState, _: Amount, __: Context) -> NoState:
        fail(raised)
        return state

    handlers.register("add", body=Amount, kind=kind)(failing)

    with pytest.raises(Found, match="becomes a fault: ") as found:
        exercise(handlers, three(), runs_max=1)

    assert RAISED[raised][1] in str(found.value)
    assert f"raised at {FAILED_AT}" in str(found.value)


@pytest.mark.parametrize("run", range(2, 5))
def test_a_handler_that_exits_in_a_later_run_is_found(run: int) -> None:
    handlers, runs = Handlers(), 0

    @handlers.register("add", body=Amount)
    def add(state: NoState, _: Amount, __: Context) -> NoState:
        nonlocal runs
        runs += 1
        if runs == run:
            raise SystemExit("later")
        return state

    with pytest.raises(Found, match="SystemExit: later"):
        exercise(handlers, three()[:1])


def test_answers_are_outputs_too() -> None:
    asked = given("acc-7", "add", {"amount": 1}, reply_to="answers")

    report = exercise(of(suspects.answering), [asked], hash_seeds=())

    assert report.outputs("answer") == [{"text": "yes", "stamp": ""}]


def test_unnumbered_messages_keep_their_order_of_arrival_and_have_one_effect_each() -> None:
    messages = [given("acc-7", "add", {"amount": n}, unnumbered=True) for n in (1, 2, 2)]

    report = exercise(of(good), messages, runs_max=60, hash_seeds=())

    assert report.state("acc-7") == {"amounts": [1, 2, 2]}
    assert len(report.outputs("note")) == 3


def test_a_handler_that_is_reached_by_an_output_only_is_checked_as_well() -> None:
    handlers = of(good)
    handlers.register("note", state=Account, body=Note)(
        lambda account, _, __: Handled(account, (Output("note", Stamped(), "others"),))
    )

    with pytest.raises(Found, match=r"message 1 of 'notes' \(note\) calls uuid"):
        exercise(handlers, three())


def test_outputs_that_call_each_other_for_ever_are_found() -> None:
    handlers = Handlers()
    handlers.register("again", state=Account, body=Amount)(
        lambda account, body, _: Handled(account, (Output("again", body),))
    )

    with pytest.raises(Found, match="goes on for ever: its outputs come back here"):
        exercise(handlers, [given("acc-7", "again", {"amount": 1})])


def test_faults_are_chosen_evenly_where_there_are_too_many() -> None:
    def places(runs_max: int) -> Sequence[int]:
        return [place for plan in fault_plans(40, runs_max) for place in plan.at]

    assert len(places(1_000)) == 40 * len(PASSING_FAULTS)
    assert len(places(50)) <= 50
    assert places(50)[-1] in range(35, 40)


async def test_a_killed_worker_is_followed_by_one_that_remembers_nothing() -> None:
    regions = TwoRegions(of(good), FaultPlan({0: CallFault.KILLED_AFTER}))
    (first,) = as_sent(three()[:1])
    killed = regions.workers["east"]

    assert not await regions.deliver("east", [first])

    assert regions.workers["east"] is not killed
    assert await regions.deliver("east", [first])


async def test_a_handler_that_waits_outside_does_not_have_its_claim_renewed_without_end() -> None:
    regions = TwoRegions(of(suspects.waiting, Kind.EFFECTFUL))

    await regions.settle("east", *as_sent(three()[:1]))

    assert len(regions.faults.made) < 50


def answering(on_fault: OnFault = OnFault.SKIP) -> Handlers:
    """Accounts that answer what they hold, and take nothing that is negative."""
    own = Handlers()

    @own.register("add", state=Account, body=Amount, on_fault=on_fault, answer=Amount)
    def add(account: Account, body: Amount, _: Context) -> Handled[Account]:
        if body.amount < 0:
            raise ValueError("nothing is taken away")
        after = Account(amounts=[*account.amounts, body.amount])
        return Handled(after, answer=Amount(amount=sum(after.amounts)))

    return own


def test_what_is_asked_is_answered_as_by_an_app_and_a_fault_with_its_reason() -> None:
    adds = [given("acc-7", "add", {"amount": amount}) for amount in (3, -1, 4)]

    assert asked(answering(), adds) == [
        Answered(0, 0, {"amount": 3}),
        Failed("ValueError: nothing is taken away", 1),
        Answered(2, 2, {"amount": 7}),
    ]


def test_what_waits_behind_a_fault_is_named_by_who_asks() -> None:
    adds = [given("acc-7", "add", {"amount": amount}) for amount in (-1, 4)]

    with pytest.raises(Found, match=r"'acc-7' \(add\) is not answered: Waiting"):
        asked(answering(OnFault.HALT), adds)

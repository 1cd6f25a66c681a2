"""A backtest runs kept messages again, and names what another handler would have made of them."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from shared.backtest.history import build_history
from shared.backtest.kept_rows import RowsRefused
from shared.backtest.rerun import EVERYTHING, Change, How, run_again
from shared.backtest.sums import Sums
from shared.backtest.what_if import WhatIf, follow_change
from shared.domain.handler import (
    HERE,
    Context,
    Handled,
    Handlers,
    Kind,
    Output,
    StateModel,
)
from shared.domain.producer import HTTP_SOURCE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.ports import Document
from shared.storage.entries import lacks_state, with_state
from tests.business import Outside, business, payment
from tests.world import POLICY, SKIP, Account, Amount, World, booked, message, take

KEEPING = replace(POLICY, keeps_inputs=True, waits=replace(POLICY.waits, gap_seconds=0))
MET = ResolutionRequest(ResolutionAction.SET_STATE, "Ada", "counted anew", body=b'{"amounts":[9]}')


class Total(BaseModel):
    """The total that is sent on."""

    total: int


class Answer(BaseModel):
    """The answer to whoever asked."""

    left: int


type Book = Callable[[int], int]


def bank(book: Book = lambda amount: amount, **options: Any) -> Handlers:
    """Accounts that book amounts, tell totals, and send to other accounts and themselves."""
    made = Handlers()

    def add(account: Account, body: Amount, context: Context) -> Account:
        return booked(account, Amount(amount=book(body.amount)))

    made.register("account.add", state=Account, body=Amount, **options)(add)

    @made.register("account.tell", state=Account, body=Amount, kind=Kind.DETERMINISTIC)
    @made.register("account.bill", state=Account, body=Amount, answer=Answer)
    def bill(account: Account, body: Amount, context: Context) -> Handled[Account]:
        after = booked(account, Amount(amount=book(body.amount)))
        total = Total(total=sum(after.amounts))
        return Handled(after, (Output("account.total", total),), Answer(left=total.total))

    @made.register("account.pass", state=Account, body=Amount)
    def forward(account: Account, body: Amount, context: Context) -> Handled[Account]:
        passed = Amount(amount=book(body.amount))
        return Handled(account, (Output("account.add", passed, "acc-8"),))

    @made.register("account.remind", state=Account, body=Amount)
    def remind(account: Account, body: Amount, context: Context) -> Handled[Account]:
        later = Output("account.add", body, to=HERE, after=timedelta(days=1), reminder="monthly")
        return Handled(account, (later,))

    @made.register("account.price", state=Account, body=Amount)
    def price(account: Account, body: Amount, context: Context) -> Account:
        found = context.captured("price", lambda: 100)
        return booked(account, Amount(amount=book(found + body.amount)))

    @made.register("account.fail", state=Account, body=Amount)
    def fail(account: Account, body: Amount, context: Context) -> Account:
        if book(body.amount) == body.amount:
            raise ArithmeticError(f"not {body.amount}")
        return booked(account, body)

    @made.register("account.grow", state=Account, body=Amount)
    def grow(account: Account, body: Amount, context: Context) -> Account:
        return Account(amounts=[*account.amounts, *range(body.amount)])

    return made


def doubled(amount: int) -> int:
    return 2 * amount


@pytest.fixture
def world() -> World:
    """Two regions whose entries keep their inputs."""
    return World(policy=KEEPING, handlers=bank())


def documents(world: World, session: str = "acc-7") -> list[Document]:
    """The session's entries as an archive has them: with whole states that lie beside them."""
    stored = world.journal.partitions[session]
    found = []
    for document in world.entries(session):
        beside = stored.get(f"state-{document['id']}")
        found.append(with_state(document, beside) or {} if lacks_state(document) else document)
    kept: list[Document] = json.loads(json.dumps(found))
    return kept


def outcomes(
    world: World, handlers: Handlers, how: How = EVERYTHING, session: str = "acc-7"
) -> list[Any]:
    return [*run_again(build_history(documents(world, session)), handlers, how)]


def sums(world: World, handlers: Handlers, how: How = EVERYTHING, session: str = "acc-7") -> Sums:
    found = Sums()
    found.take(session, outcomes(world, handlers, how, session))
    return found


def differences(found: Sums) -> dict[tuple[str, str], tuple[int, int, str, str]]:
    """By type and field: how many entries, the first position, and both values there."""
    return {key: (s.count, s.position, s.was, s.now) for key, s in found.found.items()}


def left_out(found: Sums) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for (why, _), count in found.left_out.items():
        counts[why] += count
    return dict(counts)


async def test_the_same_handlers_make_the_same_of_everything(world: World) -> None:
    kinds = ("add", "bill", "tell", "pass", "remind", "price", "grow")
    arriving = [message(n, kind=f"account.{kind}") for n, kind in enumerate(kinds)]
    timed = [replace(one, time="2026-01-02T03:04:05Z") for one in arriving]
    await take(world.east, *timed, message(9), message(8), message(7))

    found = sums(world, bank())

    assert found.found == {}
    assert found.messages.total() == len(kinds) + 3
    assert left_out(found) == {"only parked its message: a later entry processed it": 2}


async def test_a_changed_handler_is_found_by_type_and_field_where_it_begins(world: World) -> None:
    await take(world.east, message(0, 0), message(1, 5), message(2, 0, kind="account.bill"))
    await take(world.east, message(3, 7, kind="account.bill"), message(4, 11))

    found = differences(sums(world, bank(doubled)))

    assert found == {
        ("account.add", "state/amounts/*"): (2, 1, "5", "10"),
        ("account.bill", "state/amounts/*"): (1, 3, "7", "14"),
        ("account.bill", "output account.total/total"): (1, 3, "12", "19"),
        ("account.bill", "answer/left"): (1, 3, "12", "19"),
    }


async def test_a_run_that_goes_on_carries_a_difference_to_what_follows(world: World) -> None:
    await take(world.east, message(0, 5), message(1, 0), message(2, 0, kind="account.bill"))

    found = differences(sums(world, bank(doubled), How(goes_on=True)))

    assert found["account.add", "state/amounts/*"] == (2, 0, "5", "10")
    assert found["account.bill", "output account.total/total"] == (1, 2, "5", "10")
    assert differences(sums(world, bank(doubled)))["account.add", "state/amounts/*"][0] == 1


async def test_messages_of_one_entry_are_run_one_after_the_other(world: World) -> None:
    bills = [message(n, n, kind="account.bill") for n in range(4)]
    # What is asked may be folded although it has an answer.
    five = [replace(one, source=HTTP_SOURCE) for one in bills] + [message(4)]
    made_from = await world.east.consumer.dispatcher.prepare(None, five[0])
    assert await world.east.consumer.commit_fold(made_from, five)

    assert differences(sums(world, bank())) == {}
    found = differences(sums(world, bank(doubled)))
    assert found == {
        ("account.add + account.bill", "state/amounts/*"): (1, 0, "1", "2"),
        ("account.bill", "output account.total/total"): (1, 0, "1", "2"),
        ("account.bill", "answer/left"): (1, 0, "1", "2"),
    }


async def test_what_was_looked_up_is_as_it_was_and_nothing_is_looked_up_anew(world: World) -> None:
    await take(world.east, message(0, 1, kind="account.price"), message(1, 1))
    now = bank()
    now.by_type["account.add"] = replace(
        now.by_type["account.add"], handle=now.by_type["account.price"].handle
    )

    found = sums(world, now)

    assert found.found == {}
    assert found.messages == {"account.price": 1}
    assert left_out(found) == {"has a handler that looks up what was not kept": 1}


async def test_a_fault_that_is_none_any_more_is_a_difference_and_a_new_one_is_too(
    world: World,
) -> None:
    await take(world.east, message(0, 3, kind="account.fail"), message(1, 4))

    def odd(amount: int) -> int:
        if amount == 4:
            raise ZeroDivisionError("four")
        return amount + 1

    assert differences(sums(world, bank())) == {}
    assert differences(sums(world, bank(odd))) == {
        ("account.fail", "fault"): (1, 0, '"ArithmeticError: not 3"', '"(absent)"')
    }
    await world.east.resolver.resolve("acc-7", SKIP)
    found = differences(sums(world, bank(odd)))
    assert found["account.add", "fault"] == (1, 3, '"(absent)"', '"ZeroDivisionError: four"')


async def test_a_run_that_goes_on_does_not_pass_a_new_fault(world: World) -> None:
    def odd(amount: int) -> int:
        if amount == 2:
            raise ZeroDivisionError("two")
        return amount

    await take(world.east, *map(message, range(4)))

    found = sums(world, bank(odd), How(goes_on=True))

    assert differences(found) == {
        ("account.add", "fault"): (1, 1, '"(absent)"', '"ZeroDivisionError: two"')
    }
    assert left_out(found) == {"stands behind a fault that was none before": 2}


async def test_a_run_that_goes_on_does_not_apply_a_passed_message_twice(world: World) -> None:
    await take(world.east, message(0, 3, kind="account.fail"), message(1, 4))
    await world.east.resolver.resolve("acc-7", SKIP)

    found = sums(world, bank(lambda amount: amount + 1), How(goes_on=True))

    # After the fault that is none any more: 3, then 5 in place of 4.
    assert found.messages == {"account.fail": 1, "account.add": 1}
    assert differences(found)["account.add", "state/amounts/*"] == (1, 3, "4", "3")
    assert left_out(found) == {
        "only parked its message: a later entry processed it": 1,
        "was decided about a fault that is none now": 1,
    }


async def test_a_decision_of_a_person_and_a_skipped_message_are_left_out_by_name(
    world: World,
) -> None:
    await take(world.east, message(0), message(1, kind="account.fail"))
    await world.east.resolver.resolve("acc-7", SKIP)
    await world.east.resolver.resolve("acc-7", MET)
    await take(world.east, message(2))

    found = sums(world, bank(doubled))

    assert found.messages == {"account.add": 2, "account.fail": 1}
    assert left_out(found) == {
        "is a decision of a person, and has no message": 1,
        "skipped its message: no handler ran": 1,
    }
    # The message after the decision ran on the state that the person set.
    assert differences(found)["account.add", "state/amounts/*"] == (2, 0, "1", "2")


async def test_a_handler_that_calls_the_outside_is_never_called() -> None:
    outside = Outside()
    world = World(policy=KEEPING, handlers=business(outside))
    await take(world.east, payment(0), payment(1))
    asked = [*outside.asked]

    found = sums(world, business(outside))

    assert found.messages == {}
    assert left_out(found) == {"has a handler that calls the outside": 2}
    assert len(asked) == 2
    assert outside.asked == asked


async def test_what_an_archive_may_not_have_is_left_out_and_the_rest_is_run() -> None:
    world = World(policy=KEEPING, handlers=bank(archived=False))
    await take(world.east, message(0), message(1, kind="account.bill"), message(2))

    found = sums(world, bank(doubled))

    assert found.messages == {"account.bill": 1}
    assert left_out(found) == {"has a message that was not kept": 2}
    assert differences(found)["account.bill", "state/amounts/*"] == (1, 1, "2", "4")


async def test_states_that_lie_beside_entries_are_made_again(world: World) -> None:
    await take(world.east, message(0, 9_000, kind="account.grow"), *map(message, range(1, 4)))
    assert any(lacks_state(one) for one in world.entries())

    assert differences(sums(world, bank())) == {}
    found = differences(sums(world, bank(doubled)))
    assert found == {("account.add", "state/amounts/*"): (3, 1, "2", "4")}


async def test_a_state_that_is_not_kept_leaves_out_what_stands_on_it(world: World) -> None:
    await take(world.east, message(0, 9_000, kind="account.grow"), *map(message, range(1, 4)))
    without = world.entries()
    found = Sums()
    found.take("acc-7", run_again(build_history(without), bank()))

    assert found.messages == {}
    assert left_out(found) == {"stands on a state that is not kept": 4}


async def test_what_compaction_took_away_is_not_guessed(world: World) -> None:
    await take(world.east, *map(message, range(4)))
    found = Sums()
    kept = [one for one in documents(world) if one["id"] != "000000000001"]
    found.take("acc-7", run_again(build_history(kept), bank()))

    assert found.messages == {"account.add": 2}
    assert left_out(found) == {"stands behind an entry that is not kept": 1}


async def test_a_session_of_a_name_that_was_used_before_begins_anew(world: World) -> None:
    await take(world.east, *map(message, range(3)))
    after = World(policy=KEEPING, handlers=bank())
    await take(after.east, message(0, 7))
    found = Sums()
    both = [*documents(world), *documents(after)]
    found.take("acc-7", run_again(build_history(both), bank(), How(goes_on=True)))

    assert (found.found, found.messages) == ({}, {"account.add": 4})


async def test_a_change_is_not_applied_to_another_state_than_its_own(world: World) -> None:
    grow = message(1, 9_000, kind="account.grow")
    await take(world.east, message(0), grow, *map(message, range(2, 5)))
    kept = [one for one in documents(world) if one["id"] != "000000000001"]
    found = Sums()
    found.take("acc-7", run_again(build_history(kept), bank()))

    assert (found.messages, found.found) == ({"account.add": 1}, {})
    assert left_out(found) == {
        "stands behind an entry that is not kept": 1,
        "stands on a state that is not kept": 2,
    }


async def test_of_two_versions_of_an_entry_the_one_that_ended_counts(world: World) -> None:
    await take(world.east, *map(message, range(2)))
    kept = documents(world)
    claim = {**kept[1], "status": "working", "claimed": True, "state": {"amounts": [666]}}
    for versions in ([kept[0], claim, kept[1]], [kept[0], kept[1], claim]):
        found = Sums()
        found.take("acc-7", run_again(build_history(versions), bank()))

        assert found.found == {}
        assert found.messages == {"account.add": 2}
        assert not found.left_out


async def test_a_newer_model_is_compared_as_it_reads_the_kept_state(world: World) -> None:
    class Counted(BaseModel):
        amounts: list[int] = []
        count: int = 0

    def upgrade(state: dict[str, Any], version: int) -> Counted:
        return Counted(**state, count=len(state["amounts"]))

    now = Handlers()
    counted = StateModel(Counted, 2, upgrade, "Account")

    @now.register("account.add", state=counted, body=Amount)
    def add(account: Counted, body: Amount, context: Context) -> Counted:
        amounts = [*account.amounts, body.amount]
        return Counted(amounts=amounts, count=len(amounts) if body.amount != 2 else 0)

    await take(world.east, *map(message, range(3)))

    assert differences(sums(world, now)) == {("account.add", "state/count"): (1, 1, "2", "0")}


async def test_a_type_without_a_handler_would_be_a_fault(world: World) -> None:
    await take(world.east, message(0), message(1, kind="account.bill"))
    now = bank()
    del now.by_type["account.bill"]

    (((types, name), seen),) = sums(world, now).found.items()

    assert (types, name, seen.was) == ("account.bill", "fault", '"(absent)"')
    assert "no handler for type 'account.bill'" in seen.now


async def test_only_what_was_written_in_time_is_run(world: World) -> None:
    for n in range(4):
        await take(world.east, message(n))
        world.clock.seconds += 100
    began = world.entries()[0]["_ts"]

    found = sums(world, bank(doubled), How(began + 100, began + 300))

    assert differences(found) == {("account.add", "state/amounts/*"): (2, 1, "2", "4")}
    assert found.messages == {"account.add": 2}


def reading(world: World) -> Callable[[Any], Mapping[str, Sequence[Document]]]:
    return lambda names: {name: documents(world, name) for name in names if world.entries(name)}


async def test_a_message_that_never_came_is_followed_to_the_sessions_it_sent_to(
    world: World,
) -> None:
    await take(world.east, message(0, 1), message(0, 2, session="acc-8"))
    await take(world.east, message(1, 5, kind="account.pass"), message(2, 3))
    sent = [one for one in world.bus.messages("east", "in") if one.session == "acc-8"]
    await take(world.east, *sent, message(1, 7, session="acc-8"), message(0, session="acc-9"))

    dropped = WhatIf("acc-7", message(1).id, Change(None))
    found = follow_change(dropped, reading(world), bank(), EVERYTHING)

    # Of session acc-8 what follows, too, and nothing of acc-9.
    assert found.sessions == 2
    assert differences(found) == {
        ("account.pass", "output account.add"): (1, 1, '{"amount": 5}', '"(absent)"'),
        ("account.add", "state/amounts/*"): (2, 1, "5", '"(absent)"'),
    }


async def test_what_a_message_would_have_said_otherwise_is_followed_too(world: World) -> None:
    await take(world.east, message(0, 5, kind="account.pass"))
    sent = [one for one in world.bus.messages("east", "in") if one.session == "acc-8"]
    await take(world.east, *sent, message(1, 7, session="acc-8"))

    said = WhatIf("acc-7", message(0).id, Change(b'{"amount":6}'))
    found = follow_change(said, reading(world), bank(), EVERYTHING)

    assert differences(found) == {
        ("account.pass", "output account.add/amount"): (1, 0, "5", "6"),
        ("account.add", "state/amounts/*"): (1, 0, "5", "6"),
    }


async def test_a_message_that_is_not_kept_cannot_be_another_one(world: World) -> None:
    await take(world.east, message(0))
    unknown = WhatIf("acc-7", "nobody", Change(None))

    with pytest.raises(RowsRefused, match="session 'acc-7' has no kept message 'nobody'"):
        follow_change(unknown, reading(world), bank(), EVERYTHING)

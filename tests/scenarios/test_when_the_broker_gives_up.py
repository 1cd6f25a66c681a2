"""The broker gives up on a message, or a delivery is rejected: it ends by name, or goes again."""

import asyncio
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from functions.triggers.recover import renew_reports, sweep_dead_letters
from shared.domain import wire
from shared.domain.errors import InvalidBody, LockstepError, NotRepeatable
from shared.domain.handler import Context, Handlers, Kind
from shared.domain.message import Message, Number
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.wire import to_properties
from shared.engine.build import Services
from shared.engine.operate.dead_letters import LETTERS_MAX
from shared.engine.operate.error_queue import QueuedReport, RepeatRequest
from shared.engine.publish.ingest import KEY_SECONDS
from shared.ports import DeadLetter
from shared.testkit.injected_faults import CallFault, ProcessKilled
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.business import claimed
from tests.world import (
    DELAY_SECONDS,
    POLICY,
    REGIONS,
    RETRY,
    Account,
    Amount,
    World,
    message,
    take,
)

# When the broker gives up on a message, the sweep runs it after all, or gives it a named end.

NOW = datetime.fromtimestamp(EPOCH_SECONDS, UTC).isoformat()
REASON = "MaxDeliveryCountExceeded: delivered 750 times"


def letter_of(sent: Message, *, is_unbound: bool = False) -> DeadLetter:
    return DeadLetter("spoofed", wire.to_properties(sent), sent.body, REASON, is_unbound)


async def sweep(world: World, *letters: DeadLetter, region: str = "east") -> list[DeadLetter]:
    """Dead-letter these in a region, sweep there, and see what is left."""
    left = world.bus.dead_letters[region, "in"]
    left.extend(letters)
    await sweep_dead_letters(getattr(world, region).dead_letters)
    return left


@pytest.mark.parametrize("number", [message(0).number, None], ids=["numbered", "un-numbered"])
@pytest.mark.parametrize("kind", ["account.add", "account.bill", "account.pay"])
async def test_a_good_message_runs_after_all_and_is_no_fault(
    world: World, number: Number | None, kind: str
) -> None:
    letter = letter_of(replace(message(0, kind=kind), number=number, time=NOW))

    for region in REGIONS:
        assert await sweep(world, letter, region=region) == []

    assert [entry["status"] for entry in world.entries()] == ["completed"]
    assert world.amounts() == [1]
    assert world.reports() == []


async def test_good_messages_run_in_their_order_whatever_order_they_lie_in(world: World) -> None:
    kinds = ["account.add", "account.pay", "account.bill", "account.add"]
    sent = [message(n, kind=kind) for n, kind in enumerate(kinds)]

    assert await sweep(world, *map(letter_of, (sent[3], sent[1], sent[0], sent[2]))) == []

    assert world.amounts() == [1, 2, 3, 4]


async def test_it_shares_no_entry_with_deliveries_that_come_meanwhile(world: World) -> None:
    deliveries = [world.east.consumer.consume(message(n), n) for n in (1, 2, 3)]

    await asyncio.gather(*deliveries, sweep(world, letter_of(message(0))))

    assert world.amounts() == [1, 2, 3, 4]
    (first,) = world.entries()[0]["identities"]
    assert first["id"] == message(0).id


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.DETERMINISTIC, Kind.EFFECTFUL, Kind.IDEMPOTENT])
async def test_one_whose_handler_ends_each_worker_becomes_a_fault(kind: Kind) -> None:
    deadly, ran = Handlers(), 0

    @deadly.register("account.kill", state=Account, body=Amount, kind=kind)
    def kill(account: Account, body: Amount, _: Context) -> Account:
        nonlocal ran
        ran += 1
        raise ProcessKilled("account.kill")

    world, letter = World(handlers=deadly), letter_of(message(0, kind="account.kill"))
    for _ in range(9):
        if world.entries() and world.entries()[-1]["status"] != "working":
            break
        world.east = world.worker("east")
        with suppress(ProcessKilled):
            await sweep(world, *([] if ran else [letter]))
        world.clock.seconds += 60

    (fault,) = world.entries()
    # A pure one has run before the broker gave up on it, which an effectful one's claim would tell.
    assert (fault["status"], ran) == ("faulted", 3 if kind is Kind.EFFECTFUL else 2)
    assert "the worker that ran its handler ended, in try" in fault["reason"]
    world.east = world.worker("east")
    assert await sweep(world) == []


@pytest.mark.parametrize("number", [message(0).number, None], ids=["numbered", "un-numbered"])
@pytest.mark.parametrize("kind", ["account.add", "account.burn", "account.melt"])
async def test_one_that_no_host_can_bind_becomes_a_fault_that_a_person_can_resolve(
    world: World, number: Number | None, kind: str
) -> None:
    sent = replace(message(0, kind=kind), number=number, time=NOW)

    assert await sweep(world, letter_of(sent, is_unbound=True)) == []
    await world.west.consumer.consume(message(1))

    fault, parked = world.entries()
    assert [fault["status"], parked["status"]] == ["faulted", "parked"]
    assert fault["reason"] == f"dead-lettered by the broker: {REASON}"
    assert fault["message"]["body"].encode() == sent.body
    assert [report["reason"] for report in world.reports()] == [fault["reason"]]
    if kind == "account.add":
        await world.east.resolver.resolve("acc-7", RETRY)
        assert world.amounts()[:1] == [1]


async def test_its_handler_does_not_run_though_its_type_goes_on_after_faults(world: World) -> None:
    await world.east.consumer.consume(message(1))

    hint = message(0, kind="account.hint")
    assert await sweep(world, letter_of(hint, is_unbound=True)) == []
    await world.east.recovery.sweep()
    world.clock.seconds += 60
    await world.east.recovery.sweep()

    assert world.amounts() == [2]
    assert [e["status"] for e in world.entries()] == ["parked", "faulted", "completed"]
    assert "the broker" in world.entries()[1]["reason"]


async def test_what_the_journal_has_is_only_removed(world: World) -> None:
    taken = [message(0), message(1), replace(message(7), number=None, time=NOW), message(3)]
    await take(world.west, *taken)
    before = world.entries()

    for region in REGIONS:
        assert await sweep(world, *map(letter_of, taken), region=region) == []

    assert world.entries() == before
    assert world.amounts() == [1, 2, 8]
    assert world.reports() == []


async def test_a_message_whose_turn_has_not_come_is_parked(world: World) -> None:
    assert await sweep(world, letter_of(message(1))) == []
    await world.east.consumer.consume(message(0))

    assert world.amounts() == [1, 2]


async def test_it_is_parked_beside_the_claim_of_a_worker_that_has_its_session() -> None:
    world = await claimed(1.0)

    assert await sweep(world, letter_of(message(1, kind="account.bill"))) == []
    world.clock.seconds += 60
    await world.west.recovery.sweep()

    assert [entry["status"] for entry in world.entries()] == ["completed", "completed"]


async def test_a_fenced_producers_message_is_refused_by_name(world: World) -> None:
    await world.east.consumer.consume(message(0, level=1))

    assert await sweep(world, letter_of(message(1))) == []

    assert world.entries()[-1]["status"] == "skipped"


OTHERS = {
    "no message": DeadLetter(None, {"origin": "fax"}, b"\xff", REASON),
    "an AMQP sequence": DeadLetter("s", {}, b"[1, 2]", f"its body is an AMQP sequence; {REASON}"),
    "other content": letter_of(replace(message(0), body=b'{"amount":99}')),
    "too old": letter_of(replace(message(9), number=None, time="2013-01-01T05:17:00Z")),
    "no time": letter_of(replace(message(9), number=None)),
}


@pytest.mark.parametrize("case", OTHERS)
async def test_what_no_journal_takes_is_reported_whole_with_the_brokers_reason(case: str) -> None:
    world = World()
    await world.east.consumer.consume(message(0))
    letter = OTHERS[case]

    assert await sweep(world, letter) == []

    (report,) = world.reports()
    assert str(report["reason"]).startswith(f"dead-lettered by the broker: {letter.reason}")
    assert b64decode(str(report["body"])) == letter.body
    assert report["properties"] == dict(letter.properties)
    assert world.amounts() == [1]


async def test_a_message_of_a_type_without_a_journal_runs_after_all_and_is_counted() -> None:
    ran: list[int] = []
    idempotent = Handlers()

    @idempotent.register("account.ping", state=Account, body=Amount, kind=Kind.IDEMPOTENT)
    async def ping(account: Account, body: Amount, _: Context) -> Account:
        ran.append(body.amount)
        return account

    world = World(handlers=idempotent)
    ping_sent = replace(message(0, kind="account.ping"), number=None, time=NOW)

    assert await sweep(world, letter_of(ping_sent)) == []

    assert [len(world.reports()), ran] == [0, [1]]
    assert [entry["status"] for entry in world.entries()] == ["completed"]


async def test_one_that_cannot_be_ended_now_is_left_and_holds_nobody_up(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.FORBIDDEN)
    first, second = letter_of(message(0)), letter_of(message(0, session="acc-8"))

    assert await sweep(world, first, second) == [first]
    assert await sweep(world) == []

    for session in ("acc-7", "acc-8"):
        assert [entry["status"] for entry in world.entries(session)] == ["completed"]


# A subscription that feeds the queue gives up on what the queue cannot take.

FED = replace(POLICY, input_topics=("orders", "payments"))


async def test_when_a_subscription_that_feeds_the_queue_gives_up_its_messages_end_too() -> None:
    world = World(policy=FED)
    for topic, sent in (("orders", message(1)), ("payments", message(0))):
        world.bus.dead_letters["east", f"{topic}/Subscriptions/in"].append(letter_of(sent))
    world.bus.dead_letters["east", "payments/Subscriptions/in"].append(OTHERS["no message"])

    assert await sweep(world) == []

    assert world.amounts() == [1, 2]
    assert [report["properties"] for report in world.reports()] == [{"origin": "fax"}]
    assert not any(world.bus.dead_letters.values())


async def test_a_topic_that_is_missing_keeps_no_other_place_from_being_swept() -> None:
    world = World(policy=FED)
    world.bus.fault_plan.plan("dead_letters.east", None, CallFault.FORBIDDEN, None)
    fed = world.bus.dead_letters["east", "payments/Subscriptions/in"]
    # That it is missing is found at the start already.
    assert "queue 'payments' of west" in world.east.missing_places.places
    fed.append(letter_of(message(0)))

    await sweep(world)

    assert (fed, world.amounts()) == ([], [1])


async def test_without_an_error_queue_nothing_is_removed(world: World) -> None:
    world.bus.unavailable.update(REGIONS)
    letter = OTHERS["no message"]

    assert await sweep(world, letter) == [letter]


async def test_one_run_is_bounded(world: World) -> None:
    letters = [letter_of(message(0, session=f"acc-{n}")) for n in range(LETTERS_MAX + 5)]

    assert len(await sweep(world, *letters)) == 5


# When an error is sent again, it is sent once, whoever presses where, whatever fails meanwhile.

STRAY = message(0, session="acc-7")


async def reject(
    world: World, delivery: Message = STRAY, body: bytes | None = None
) -> QueuedReport:
    """A delivery that the journal did not take, as the error queue has it."""
    said = dict[str, object](to_properties(delivery))
    await world.east.rejecter.reject(delivery.session, said, delivery.body, "no time")
    # The other region sees its copy later.
    world.clock.seconds += DELAY_SECONDS
    (report,) = (await world.east.errors.browse(limit=10)).reports
    return report


def request_for(report: QueuedReport, who: str = "Ada") -> RepeatRequest:
    queued = report.queued
    return RepeatRequest(queued.session, queued.id, queued.sequence, who, "its sender is mended")


def sent(world: World, region: str = "east") -> list[Message]:
    return world.bus.messages(region, "in")


async def test_it_is_numbered_and_recorded(world: World) -> None:
    report = await reject(world)

    again = await world.east.errors.send_again(request_for(report))

    assert [one.id for one in sent(world)] == [again.id]
    assert (again.session, again.type, again.body) == (STRAY.session, STRAY.type, STRAY.body)
    assert again.number is not None
    (shown,) = (await world.east.errors.browse(limit=10)).reports
    assert shown.repetition is not None
    assert (shown.repetition.who, shown.repetition.is_done) == ("Ada", True)


async def test_pressed_in_both_regions_at_once_it_is_one_message(world: World) -> None:
    report = await reject(world)

    async def press(worker: Services, who: str) -> object:
        try:
            return await worker.errors.send_again(request_for(report, who))
        except NotRepeatable as error:
            return error

    await asyncio.gather(press(world.east, "Ada"), press(world.west, "Bob"))

    assert len({(one.id, one.number) for one in sent(world)}) == 1
    with pytest.raises(NotRepeatable, match="has sent it again before"):
        await world.west.errors.send_again(request_for(report, "Eve"))


async def test_of_two_edits_only_the_first_is_sent(world: World) -> None:
    report = await reject(world)
    edited = replace(request_for(report), body=b'{"amount":1}')
    await world.east.errors.send_again(edited)

    for other in (replace(edited, body=b'{"amount":2}'), replace(edited, to="acc-8")):
        with pytest.raises(NotRepeatable, match="Ada decided otherwise before"):
            await world.west.errors.send_again(other)

    assert [one.body for one in sent(world)] == [b'{"amount":1}']


async def test_what_was_begun_a_day_ago_is_not_sent_unseen(world: World) -> None:
    report = await reject(world)
    world.journal.fault_plan.plan("end_repetition", CallFault.REFUSED)
    with pytest.raises(LockstepError):
        await world.east.errors.send_again(request_for(report))
    before = len(sent(world))

    world.clock.seconds += KEY_SECONDS
    with pytest.raises(NotRepeatable, match="nobody knows any more"):
        await world.east.errors.send_again(request_for(report))

    assert len(sent(world)) == before


async def test_what_no_handler_would_take_is_refused_before_it_is_recorded(world: World) -> None:
    report = await reject(world)

    with pytest.raises(InvalidBody):
        await world.east.errors.send_again(replace(request_for(report), body=b'{"amount":"x"}'))
    with pytest.raises(NotRepeatable, match="any more"):
        await world.east.errors.send_again(replace(request_for(report), report="other"))

    await world.east.errors.send_again(request_for(report))
    assert len(sent(world)) == 1


async def test_a_fault_is_decided_about_in_its_session(world: World) -> None:
    await world.east.consumer.consume(message(0, session="acc-1", kind="account.burn"))
    (report,) = (await world.east.errors.browse("acc-1", limit=10)).reports

    with pytest.raises(NotRepeatable, match="decided about in its session"):
        await world.east.errors.send_again(request_for(report))


# When a report expires in the error queue, it is gone once somebody decided, and put back before.


async def expire(
    world: World, *, reason: str = "TTLExpiredException: it expired", region: str = "east"
) -> list[DeadLetter]:
    """The 14 days of a region's reports are over: what its app leaves of their dead letters."""
    reports = world.bus.messages(region, "errors")
    world.bus.queues[region, "errors"].clear()
    letters = world.bus.dead_letters[region, "errors"]
    letters += [DeadLetter(one.session, to_properties(one), one.body, reason) for one in reports]
    await renew_reports(getattr(world, region).dead_letters)
    return letters


async def test_a_report_that_nobody_decided_about_is_put_back_whole(world: World) -> None:
    await reject(world)
    before = world.bus.messages("east", "errors")

    assert await expire(world) == []

    assert world.bus.messages("east", "errors") == before
    report = (await world.east.errors.browse(limit=10)).reports[0]
    await world.east.errors.send_again(request_for(report))
    assert [one.body for one in sent(world)] == [STRAY.body]


@pytest.mark.parametrize("decision", ["send_again", "dismiss"])
async def test_one_that_somebody_decided_about_is_gone(world: World, decision: str) -> None:
    report = await reject(world)
    await getattr(world.west.errors, decision)(request_for(report))

    assert await expire(world) == []
    assert world.bus.messages("east", "errors") == []


async def test_the_copy_of_a_fault_is_gone_once_its_session_goes_on(world: World) -> None:
    await take(world.east, message(0, kind="account.burn"))
    before = world.bus.messages("east", "errors")

    assert await expire(world) == []
    assert world.bus.messages("east", "errors") == before

    await world.west.resolver.resolve(
        "acc-7", ResolutionRequest(ResolutionAction.SKIP, "Ada", "checked")
    )
    assert await expire(world) == []
    assert world.bus.messages("east", "errors") == []


async def test_what_a_reader_outside_fails_to_take_and_what_is_no_report_stay(
    world: World,
) -> None:
    await reject(world)
    world.bus.dead_letters["east", "errors"].append(OTHERS["no message"])

    assert [one.reason for one in await expire(world, reason=REASON)] == [
        OTHERS["no message"].reason,
        REASON,
    ]
    assert world.bus.messages("east", "errors") == []


@pytest.mark.parametrize(
    ("operation", "faults"),
    [
        ("send.east", [CallFault.KILLED_BEFORE]),
        ("send.east", [CallFault.KILLED_AFTER]),
        ("send.east", [CallFault.REFUSED]),
        ("send.east", [CallFault.UNANSWERED]),
        ("dead_letters.east", [None, CallFault.KILLED_BEFORE]),
        ("dead_letters.east", [None, CallFault.REFUSED]),
    ],
)
async def test_when_putting_one_back_goes_wrong_the_next_run_does_it_and_none_is_lost(
    world: World, operation: str, faults: list[CallFault | None]
) -> None:
    await reject(world)
    (report,) = world.bus.messages("east", "errors")
    world.bus.fault_plan.plan(operation, *faults)

    with suppress(ProcessKilled):
        await expire(world)
    assert len(world.bus.dead_letters["east", "errors"]) == 1
    await renew_reports(world.east.dead_letters)

    assert world.bus.dead_letters["east", "errors"] == []
    assert {*world.bus.messages("east", "errors")} == {report}
    # Two of them are one to whoever looks.
    assert len((await world.east.errors.browse(limit=10)).reports) == 1

"""With LOCKSTEP_KEEP_INPUTS entries keep what their handlers took, and nothing else changes."""

from dataclasses import replace
from typing import Any

import pytest

from shared.domain.handler import Context, Handlers, Kind, OnFault
from shared.domain.journal import KeptInput
from shared.domain.message import Message
from shared.domain.producer import HTTP_SOURCE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Answered, Processed
from shared.storage.entries import decode_entry
from shared.storage.limits import INLINE_BYTES_MAX
from shared.testkit.injected_faults import CallFault
from tests.business import LEASE_OVER, BusinessWorld, Outside, business, dies, payment, plain
from tests.sized_outputs import writing
from tests.world import POLICY, Account, Amount, World, booked, message, take

KEEPING = replace(POLICY, keeps_inputs=True, waits=replace(POLICY.waits, gap_seconds=0))
SECRET = '{"amount":7}'


def shop() -> Handlers:
    """The whole business, a look at a price list, and types whose bodies no archive may have."""
    whole = business(Outside())
    prices = iter(range(100, 200))

    @whole.register("account.price", state=Account, body=Amount)
    def price(account: Account, body: Amount, context: Context) -> Account:
        amount = context.captured("price", lambda: next(prices))
        return booked(account, Amount(amount=amount + body.amount))

    @whole.register("account.secret", state=Account, body=Amount, archived=False)
    def secret(account: Account, body: Amount, _: Context) -> Account:
        return booked(account, body)

    @whole.register(
        "account.burnt", state=Account, body=Amount, archived=False, on_fault=OnFault.SKIP
    )
    def burnt(_: Account, __: Amount, ___: Context) -> Account:
        raise ArithmeticError

    @whole.register(
        "account.echo", state=Account, body=Amount, archived=False, kind=Kind.DETERMINISTIC
    )
    def echo(account: Account, body: Amount, _: Context) -> Account:
        return booked(account, body)

    @whole.register("account.fill", state=Account, body=Amount)
    def fill(_: Account, body: Amount, __: Context) -> Account:
        return Account(amounts=[1_000] * body.amount)

    return whole


@pytest.fixture
def keeping() -> World:
    """Two regions whose entries keep their inputs."""
    return World(policy=KEEPING, handlers=shop())


def taken(world: World, session: str = "acc-7") -> list[Message | None]:
    """What the stored entries say that handlers took, in the order of the journal."""
    entries = map(decode_entry, world.entries(session))
    return [one.message if one else None for entry in entries for one in entry.taken]


async def folded(world: World, *messages: Message) -> None:
    """One entry of several messages."""
    made_from = await world.east.consumer.dispatcher.prepare(None, messages[0])
    assert await world.east.consumer.commit_fold(made_from, messages)


async def test_an_entry_keeps_its_message_as_it_was_sent(keeping: World) -> None:
    arriving = replace(message(0), traceparent=f"00-{'a' * 32}-{'b' * 16}-01", reply_to="there")

    await take(keeping.east, arriving, message(1))

    assert taken(keeping) == [arriving, message(1)]
    # What is remembered of the newest entry does not grow with it.
    assert not keeping.east.worker.heads["acc-7"].entry.inputs  # type: ignore[union-attr]


async def test_a_fold_keeps_each_of_its_messages_beside_its_identity(keeping: World) -> None:
    five = [
        message(n, n * 11, kind="account.secret" if n == 2 else "account.add") for n in range(5)
    ]

    await folded(keeping, *five)

    assert len(keeping.entries()) == 1
    assert taken(keeping) == [five[0], five[1], None, five[3], five[4]]


async def test_a_fold_ends_before_its_messages_fill_the_entry(keeping: World) -> None:
    body = ('{"amount":1,"x":"' + "x" * (INLINE_BYTES_MAX // 2 - 1_000) + '"}').encode()
    four = [replace(message(n), body=body) for n in range(4)]

    await folded(keeping, *four)

    assert taken(keeping) == four[:2]


async def test_what_was_parked_claimed_asked_or_tried_again_is_kept_too(keeping: World) -> None:
    await take(keeping.east, message(1), message(2), message(0))
    await take(keeping.east, payment(3))
    asked = replace(plain(4, "account.add"), source=HTTP_SOURCE)
    assert isinstance(await keeping.east.consumer.ask(asked), Answered)
    await dies(keeping, payment(4), "append", CallFault.KILLED_AFTER)
    keeping.clock.seconds += LEASE_OVER
    await keeping.west.recovery.sweep()

    kept = [one for one in taken(keeping) if one]
    assert kept == [*map(message, (1, 2, 0, 1, 2)), payment(3), asked, payment(4)][2:]


async def test_a_corrected_message_is_kept_as_its_handler_took_it(keeping: World) -> None:
    await take(keeping.east, message(0, kind="account.burn"))
    edited = ResolutionRequest(
        ResolutionAction.EDIT, "Ada", "a wrong sign", body=b'{"amount":-3}', type=None
    )
    await keeping.east.resolver.resolve("acc-7", edited)

    faulty = message(0, kind="account.burn")
    assert taken(keeping) == [faulty, replace(faulty, body=b'{"amount":-3}')]


@pytest.mark.parametrize("kind", ["account.burn", "write.again"])
async def test_what_an_entry_holds_anyhow_it_does_not_hold_twice(keeping: World, kind: str) -> None:
    arriving = writing([3], kind=kind) if kind == "write.again" else message(0, kind=kind)

    await take(keeping.east, arriving)

    (entry,) = keeping.entries(arriving.session)
    assert "inputs" not in entry
    assert taken(keeping, arriving.session) == [arriving]


@pytest.mark.parametrize("kind", ["account.secret", "account.burnt", "account.echo"])
async def test_a_type_that_is_not_archived_is_named_without_its_body(
    keeping: World, kind: str
) -> None:
    await take(keeping.east, replace(message(0, kind=kind), body=SECRET.encode()))

    (entry,) = keeping.entries()
    assert entry["inputs"] == [None]
    assert taken(keeping) == [None]
    assert entry["identities"][0]["type"] == kind


async def test_what_a_handler_looked_up_is_kept_for_each_message(keeping: World) -> None:
    three = [message(n, n, kind="account.price") for n in range(3)]

    await folded(keeping, *three)

    (entry,) = map(decode_entry, keeping.entries())
    assert entry.taken == tuple(KeptInput(one, {"price": 100 + n}) for n, one in enumerate(three))
    assert keeping.amounts() == [100, 102, 104]


@pytest.mark.parametrize("as_try", [0, 2], ids=["alone", "under a claim"])
async def test_when_an_input_does_not_fit_its_message_is_processed_without_it(
    keeping: World, as_try: int
) -> None:
    body = f'{{"amount":200000,"x":"{"x" * 900_000}"}}'.encode()
    large = replace(message(0, kind="account.fill"), body=body)

    outcome = await keeping.east.consumer.consume(large, as_try=as_try)

    assert isinstance(outcome, Processed)
    assert taken(keeping) == [None]
    (state,) = keeping.documents("state")
    assert len(state["whole"]["amounts"]) == 200_000


async def test_off_an_entry_is_what_it_was_to_the_byte(world: BusinessWorld) -> None:
    keeping = World(policy=replace(world.policy, keeps_inputs=True), handlers=world.handlers)
    sent = [message(0), payment(1), message(2, kind="account.bill"), message(3)]
    for one in (world, keeping):
        await take(one.east, *sent)

    def plainly(entry: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in entry.items() if name not in ("_etag", "inputs")}

    assert [*map(plainly, keeping.entries())] == [*map(plainly, world.entries())]
    assert not any("inputs" in entry for entry in world.entries())
    assert world.journal.fault_plan.calls == keeping.journal.fault_plan.calls

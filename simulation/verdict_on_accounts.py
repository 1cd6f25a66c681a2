"""What the accounts must have booked, by what was sent alone: the journal is not asked."""

from collections.abc import Iterator

from shared.domain.message import Message
from simulation.accounts import FORWARDED, Amount, Outside
from simulation.host import QUEUE
from simulation.operator import RETRIES
from simulation.witness import Violation, state_of
from simulation.workload import Workload, is_from_long_ago
from simulation.world import World

NEVER_BOOKED = frozenset({"account.hint", "account.unknown", "account.tell"})


def account_violations(world: World, load: Workload, outside: Outside) -> Iterator[Violation]:
    """Each amount once, each producer's in order, and the outside was told."""
    journal = world.journal
    booked = {s: list(state_of(journal, s).get("amounts", [])) for s in journal.store.entries}
    for session, amounts in booked.items():
        if len(set(amounts)) != len(amounts):
            yield Violation("P2", f"{session}: an effect twice in {amounts}")
    yield from judge_sent(world, load, booked)
    yield from judge_forwarded(world, booked)
    yield from judge_outside(world, outside, booked)


def judge_sent(world: World, load: Workload, booked: dict[str, list[int]]) -> Iterator[Violation]:
    """What is safe is booked, what was never sent is not, and lines are in order."""
    safe = world.senders.mailed.safe
    contested = {message.id for series in load.series for message in series.messages}
    contested |= {message.id for message in load.conflicting}
    for message in safe:
        amount = amount_in(message)
        is_booked = amount in booked.get(message.session, ())
        if is_never_booked(message):
            if is_booked:
                yield Violation("P9", f"{message.session}: {message.type} booked {amount}")
        elif not is_booked and message.id not in contested and not is_let_go(world, message):
            yield Violation("P1", f"{message.session}: {amount} is missing")
    for line in load.lines:
        amounts = booked.get(line.session, [])
        sent = [Amount.model_validate_json(d.body).amount for o in line.operations for d in o]
        places = [amounts.index(amount) for amount in sent if amount in amounts]
        if places != sorted(places):
            yield Violation("P3", f"{line.session} {line.group}: {sent} came as {amounts}")


def is_never_booked(message: Message) -> bool:
    """Whether a message has no effect on an account, whatever happens."""
    return message.type in NEVER_BOOKED or is_from_long_ago(message)


def is_let_go(world: World, message: Message) -> bool:
    """Whether a person gave a message up."""
    looks = world.operator.looks[message.session, message.id]
    return looks > RETRIES and message.type != "account.burn"


def amount_in(message: Message) -> int:
    """The amount that a message tells."""
    return Amount.model_validate_json(message.body).amount


def judge_forwarded(world: World, booked: dict[str, list[int]]) -> Iterator[Violation]:
    """What one account forwards another one books, and nothing else."""
    came = {
        (q.message.session, amount_in(q.message)): None
        for namespace in world.namespaces.values()
        for q in namespace.accepted[QUEUE]
        if q.message.type == "account.forward"
    }
    forwarded = {
        amount + FORWARDED for session, amount in came if amount in booked.get(session, ())
    }
    arrived = {amount for amounts in booked.values() for amount in amounts if amount > FORWARDED}
    if forwarded != arrived:
        yield Violation("P1", f"{sorted(forwarded)} were forwarded, {sorted(arrived)} booked")


def judge_outside(
    world: World, outside: Outside, booked: dict[str, list[int]]
) -> Iterator[Violation]:
    """The outside hears the same under a key however often it is called; and it is called."""
    amounts = dict(outside.calls)
    for key, amount in outside.calls:
        if amounts[key] != amount:
            yield Violation("P4", f"{key} came with {amount} and {amounts[key]}")
    called = set(amounts.values())
    for message in world.senders.mailed.safe:
        amount = amount_in(message)
        is_told = message.type == "account.tell"
        is_paid = message.type == "account.wire" and amount in booked.get(message.session, ())
        if (is_told or is_paid) and amount not in called:
            yield Violation("P1", f"{message.session}: the outside never heard of {amount}")

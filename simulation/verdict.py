"""What a run must have led to, judged by the journal's states and the queues alone."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.domain.journal import state_position
from shared.domain.message import Message
from simulation.workload import Workload
from simulation.world import REGIONS, World


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and how it shows."""

    promise: str
    text: str


def violations(world: World, workload: Workload) -> Iterator[Violation]:
    """Every broken promise of a run that came to rest."""
    for session in workload.sessions:
        amounts = amounts_of(world, session)
        yield from judge_effects(workload, session, amounts)
    yield from judge_outputs(world)


def amounts_of(world: World, session: str) -> list[int]:
    """The effects of a session, in the order of the journal."""
    head = world.journal.newest(session)
    position = state_position(head)
    holder = world.journal.entry_at(session, position) if position is not None else None
    return list((holder.state or {})["amounts"]) if holder else []


def judge_effects(workload: Workload, session: str, amounts: list[int]) -> Iterator[Violation]:
    """Each message once, and each producer's in its order."""
    sent = [list(expected(p.drafts)) for p in workload.publications if p.session == session]
    plain = [amount_in(m.body) for m in workload.plain if m.session == session]
    wanted = sorted([amount for amounts_ in sent for amount in amounts_] + plain)
    if sorted(set(amounts)) != wanted:
        lost = sorted(set(wanted) - set(amounts))
        yield Violation("P1", f"{session}: {lost} missing in {amounts}")
    if len(set(amounts)) != len(amounts):
        yield Violation("P2", f"{session}: an effect twice in {amounts}")
    for group in {p.group for p in workload.publications if p.session == session}:
        order = [
            amount
            for p in workload.publications
            if (p.session, p.group) == (session, group)
            for amount in expected(p.drafts)
        ]
        applied = [amount for amount in amounts if amount in set(order)]
        if applied != order:
            yield Violation("P3", f"{session} {group}: {applied}, not {order}")


def expected(drafts: Sequence[object]) -> Iterator[int]:
    """The amounts of drafts that take effect; hints never do."""
    for draft in drafts:
        if draft.type != "account.hint":  # type: ignore[attr-defined]
            yield amount_in(draft.body)  # type: ignore[attr-defined]


def amount_in(body: bytes) -> int:
    """The amount that a body tells."""
    amount: int = json.loads(body)["amount"]
    return amount


def judge_outputs(world: World) -> Iterator[Violation]:
    """Both regions have the same bytes, each once by its number, in order, none missing."""
    sent = {region: first_copies(world, region) for region in REGIONS}
    for region in REGIONS:
        yield from judge_copies(world, region)
        for session, messages in sent[region].items():
            sequences = [m.number.sequence for m in messages if m.number]
            if sequences != list(range(len(sequences))):
                yield Violation("P5", f"{region} {session}: outputs {sequences}")
    if sent["east"] != sent["west"]:
        yield Violation("P4", f"regions differ: {sent['east']} and {sent['west']}")


def judge_copies(world: World, region: str) -> Iterator[Violation]:
    """Every copy of an output says the same."""
    first: dict[str, Message] = {}
    for queued in world.namespaces[region].queues["out"]:
        known = first.setdefault(queued.message.id, queued.message)
        if known != queued.message:
            yield Violation("P4", f"{region}: {known} and {queued.message}")


def first_copies(world: World, region: str) -> dict[str, list[Message]]:
    """The outputs of a region by their own session, each once, in the order of arrival."""
    found: dict[str, dict[str, Message]] = {}
    for queued in sorted(world.namespaces[region].queues["out"], key=lambda q: q.visible_at):
        message = queued.message
        found.setdefault(message.session, {}).setdefault(message.id, message)
    return {session: list(messages.values()) for session, messages in sorted(found.items())}

"""A producer with a higher owner level appears: the older one can no longer have effects."""

import pytest

from shared.domain.errors import ContentConflict, InvalidClientState, ProducerDisconnected
from shared.domain.message import Number
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.consume.outcomes import Refused
from tests.world import World, message


def draft(name: str, amount: int = 1) -> Draft:
    return Draft(name, "account.add", f'{{"amount":{amount}}}'.encode())


async def test_the_older_producer_is_disconnected_at_its_ledger(world: World) -> None:
    await world.producer().publish("acc-7", [draft("a")], ProducerOptions("bank", owner_level=1))

    with pytest.raises(ProducerDisconnected, match="level 1"):
        await world.producer().publish("acc-7", [draft("b")], ProducerOptions("bank"))


async def test_the_older_producers_late_message_is_refused_and_named(world: World) -> None:
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(1, level=1))

    outcome = await world.west.consumer.consume(message(2, amount=99))

    assert isinstance(outcome, Refused)
    assert world.amounts() == [1, 2]
    assert world.entries()[-1]["reason"] == "a producer of owner level 1 rules"
    assert world.entries()[-1]["identities"][0]["id"] == message(2).id


async def test_the_new_producer_goes_on_after_a_refusal(world: World) -> None:
    await world.east.consumer.consume(message(0, level=1))
    await world.east.consumer.consume(message(1, level=0, amount=99))

    await world.east.consumer.consume(message(1, level=1))

    assert world.amounts() == [1, 2]


async def test_a_restarted_producer_goes_on_where_the_ledger_ends(world: World) -> None:
    options = ProducerOptions("bank")
    await world.producer().publish("acc-7", [draft("a"), draft("b")], options)

    again = await world.producer().publish("acc-7", [draft("b"), draft("c")], options)

    assert [m.number for m in again.messages] == [Number("bank", 0, 1), Number("bank", 0, 2)]


async def test_an_id_with_other_content_is_a_conflict(world: World) -> None:
    options = ProducerOptions("bank")
    await world.producer().publish("acc-7", [draft("a", amount=1)], options)

    with pytest.raises(ContentConflict, match="'a'"):
        await world.producer().publish("acc-7", [draft("a", amount=2)], options)


async def test_a_kept_number_that_the_ledger_contradicts_is_fatal(world: World) -> None:
    await world.producer().publish("acc-7", [draft("a")], ProducerOptions("bank"))

    with pytest.raises(InvalidClientState, match="expects 1"):
        await world.producer().publish(
            "acc-7", [draft("b")], ProducerOptions("bank", starting_sequence_number=5)
        )

"""What a worker remembers of sessions and failures is bounded, whatever their number."""

import pytest

from shared.domain.errors import Misconfigured, Unavailable
from shared.domain.journal import Entry
from shared.engine.consume.duplicates import Duplicates
from shared.engine.worker import FAILURES_MAX, HEADS_BYTES_MAX, FailureLog, Recent
from shared.testkit.memory_store import VirtualClock
from tests.world import World, message, require, take

STATE_BYTES = 100_000


def test_what_was_learned_longest_ago_is_forgotten_first() -> None:
    recent: Recent[str, int] = Recent(kept_max=2)
    for learned, name in enumerate(("a", "b", "a", "c")):
        recent[name] = learned

    assert dict(recent) == {"a": 2, "c": 3}


@pytest.mark.slow
async def test_ten_thousand_large_states_are_not_kept(world: World) -> None:
    east = world.east.worker
    await world.east.consumer.consume(message(0))
    small = require(await world.journal.head("acc-7"))
    for number in range(10_000):
        text = f"{number:0{STATE_BYTES}d}"
        head = Entry(
            f"acc-{number}", 0, small.status, small.identities, {"text": text}, None, small.attempt
        )
        east.remember_head(head.session, head, is_ours=True)

    kept = [one.entry for one in east.heads.values() if one.entry]
    assert sum(len(str((head.state or {})["text"])) for head in kept) <= HEADS_BYTES_MAX
    assert len(kept) > HEADS_BYTES_MAX / STATE_BYTES * 0.9
    assert "acc-9999" in east.heads
    assert "acc-0" not in east.heads
    assert east.head_bytes == sum(one.size for one in east.heads.values())


async def test_the_copies_that_were_looked_for_longest_ago_are_forgotten_first(
    world: World,
) -> None:
    await take(world.east, *map(message, range(120)))
    duplicates = Duplicates(world.journal, 45)
    for n in range(120):
        assert await duplicates.look(message(n)) == message(n).digest

    assert len(duplicates.processed) == 45
    assert duplicates.recall(message(0)) is None
    assert duplicates.recall(message(119)) == message(119).digest


def test_the_same_failure_in_the_same_place_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    failures = FailureLog(clock)

    for second in range(121):
        clock.seconds = float(second)
        failures.add("sending outputs", "east", Misconfigured("the queue is disabled"))
    failures.add("sending outputs", "west", Unavailable("busy"))
    failures.add("recording an acknowledgement", "east", Unavailable("busy"))

    first = "sending outputs: east: Misconfigured: the queue is disabled"
    again = f"{first} (59 more since the last warning)"
    assert caplog.messages == [
        *(first, again, again),
        "sending outputs: west: Unavailable: busy",
        "recording an acknowledgement: east: Unavailable: busy",
    ]


def test_failures_of_few_places_are_remembered() -> None:
    failures = FailureLog(VirtualClock())

    for place in range(3 * FAILURES_MAX):
        failures.add("sending", str(place), Unavailable("busy"))

    assert len(failures.logged) <= FAILURES_MAX

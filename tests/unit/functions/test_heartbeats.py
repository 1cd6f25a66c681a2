"""When feeds, timers and other regions were heard is shown, whichever instance they ran on."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from functions.http.operate import report_health, show_status
from functions.page.regions import show_regions
from shared.domain.errors import Unavailable
from shared.domain.measures import SILENCE_SECONDS, Measure
from shared.engine.operate.health import LOOK_SECONDS
from shared.engine.operate.heartbeats import COMPACT, SAGAS, SWEEP, Heartbeats, InHand
from shared.ports import StoreClock
from tests.asking import ask, document
from tests.loop_clock import in_virtual_time
from tests.world import World

DOWN = "(down, or cut off from the journal)"


@dataclass
class Kept:
    """A container of leases."""

    seconds: dict[str, float] = field(default_factory=dict)
    is_down: bool = False
    takes_writes: bool = True

    async def ages(self) -> Mapping[str, float]:
        if self.is_down:
            raise Unavailable("down")
        return self.seconds

    async def record(self, document_id: str, text: str | None = None) -> None:
        if not self.takes_writes:
            raise Unavailable("the write region is lost")
        self.seconds = {**await self.ages(), document_id: 0.0}

    async def read(self, document_id: str, clock: StoreClock | None = None) -> str | None:
        raise NotImplementedError


def hear(kept: Kept, region: str, *regions: str, **more: Any) -> Heartbeats:
    given = {"journal": World().journal, "has_sagas": True, **more}
    return Heartbeats(kept, region, regions, **given)


async def ages(heartbeats: Heartbeats) -> dict[str, float | None]:
    return {name: age.seconds for name, age in (await heartbeats.ages()).here.items()}


async def test_each_feed_and_timer_has_the_age_of_its_newest_document() -> None:
    kept = Kept({"east..0": 70.0, "east..1": 3.0, "sagas-east..0": 4.0, "west..0": 1.0})
    heartbeats = hear(kept, "east", "east", "west")

    assert await ages(heartbeats) == {
        "recover": 3.0,
        "begin_sagas": 4.0,
        SAGAS: None,
        SWEEP: None,
        COMPACT: None,
        "receive": 0.0,
    }
    await heartbeats.note(SWEEP)
    assert (await ages(heartbeats))[SWEEP] == 0.0


async def test_the_feed_of_the_ledgers_has_an_age_where_there_is_one() -> None:
    kept = Kept({"east..0": 3.0, "ledgers-east..0": 5.0, "ledgers-west..0": 1.0})

    followed = await ages(hear(kept, "east", "east", "west", ledgers=World().journal))
    assert (followed["recover"], followed["recover_ledgers"]) == (3.0, 5.0)
    assert "recover_ledgers" not in await ages(hear(kept, "east", "east", "west"))


async def test_a_region_whose_name_begins_with_another_ones_does_not_speak_for_it() -> None:
    heartbeats = hear(Kept({"east2..0": 1.0}), "east", "east", "east2")

    assert (await ages(heartbeats))["recover"] is None


async def test_what_is_silent_is_logged_for_the_alert(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept({"east..0": 122.0, "sagas-east..0": 120.0, "$timer-east-beacon": 121.0})
    heartbeats = hear(kept, "east", "east", "west")
    await heartbeats.note(SWEEP)

    with caplog.at_level(logging.WARNING, "lockstep.heartbeats"):
        await heartbeats.report()

    assert [record.getMessage() for record in caplog.records] == [
        "nothing was heard of recover for 120 s or more"
    ]


async def test_when_the_leases_are_out_of_reach_nothing_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heartbeats = hear(Kept(is_down=True), "east", "east")

    await heartbeats.note(SWEEP)
    await heartbeats.report()

    assert "could not be recorded: down" in caplog.text
    assert "is not known: down" in caplog.text


@in_virtual_time
async def test_status_shows_what_was_heard_and_null_where_that_is_not_known() -> None:
    services = World().east
    kept = Kept({"east..0": 281.0, "sagas-east..0": 3.0, "west..0": 131.0})
    kept.seconds |= {"$timer-east-beacon": 299.0, "$timer-east-sagas": 290.0}
    services.health.heartbeats = hear(kept, "east", "east", "west")

    known = document(await show_status(services, ask(method="GET")))
    never = document(await report_health(services, ask(method="GET")))
    kept.seconds["$timer-east-sweep"] = 15.0
    await asyncio.sleep(LOOK_SECONDS)
    least = document(await report_health(services, ask(method="GET")))
    kept.is_down = True
    await asyncio.sleep(LOOK_SECONDS)
    unknown = document(await show_status(services, ask(method="GET")))

    shown = known["heartbeats"]
    # It has seen what was written last, and has nothing to do.
    assert shown["recover"] == {"secondsAgo": 281.0, "within": 120.0, "silent": False}
    assert shown["sweep"] == {"secondsAgo": None, "within": 120.0, "silent": True}
    assert known["regions"] == {"west": {"secondsAgo": 131.0, "within": 120.0, "silent": True}}
    assert (never["heardSecondsAgo"], least["heardSecondsAgo"]) == (None, 290.0)
    assert (unknown["journal"], unknown["heartbeats"], unknown["regions"]) == (
        *("readable", None, None),
    )


async def test_the_sweep_is_noted_at_once_and_then_not_at_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("shared.engine.operate.heartbeats.time.monotonic", lambda: now)
    heartbeats = hear(Kept(), "east", "east", "west")
    due: list[bool] = []
    for _ in range(9):
        due.append(heartbeats.is_due())
        now += 15.0

    assert [run for run, is_due in enumerate(due) if is_due] == [0, 4, 8]


async def test_deliveries_that_do_not_end_show_and_an_idle_worker_never_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("shared.engine.operate.heartbeats.time.monotonic", lambda: now)
    in_hand = InHand(ended_at=now)
    heartbeats = hear(Kept(), "east", "east", "west", in_hand=in_hand)

    now += 10_000.0
    assert (await ages(heartbeats))["receive"] == 0.0
    in_hand.began = {1: now, 2: now + 50.0}
    now += 240.0
    assert (await ages(heartbeats))["receive"] == 240.0
    await heartbeats.report()
    assert "receive" not in caplog.text
    now += 1.0
    await heartbeats.report()
    assert "nothing was heard of receive for 240 s or more" in caplog.text

    # One that ends speaks for the others: the host ends by itself what takes too long.
    del in_hand.began[1]
    in_hand.ended_at = now
    assert (await ages(heartbeats))["receive"] == 0.0
    now += 7.0
    assert (await ages(heartbeats))["receive"] == 7.0


@dataclass
class Clock:
    """The time of this process."""

    now: float = 100.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Told:
    """A listener to measures alone."""

    values: list[tuple[str, float, dict[str, str]]] = field(default_factory=list)

    def add(self, measure: Measure, amount: float = 1, **attributes: str) -> None:
        self.values.append((measure.name, amount, attributes))


@dataclass
class Peer:
    """West, whose app sweeps four times a minute and looks whether east is heard."""

    kept: Kept
    clock: Clock
    told: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        regions = ["east", "west", "north"]
        telemetry: Any = self.told
        self.heartbeats = hear(self.kept, "west", *regions, telemetry=telemetry, has_sagas=False)

    async def work(self, seconds: float, *, heard: tuple[str, ...]) -> None:
        """Sweep for so long, while documents of these names are written all the time."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += 15.0
            older = {name: age + 15.0 for name, age in self.kept.seconds.items()}
            self.kept.seconds = older | dict.fromkeys(heard, 1.0)
            if self.heartbeats.is_due():
                await self.heartbeats.note(SWEEP)
                await self.heartbeats.report()


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    clock = Clock()
    monkeypatch.setattr("shared.engine.operate.heartbeats.time", clock)
    return Peer(Kept({}), clock)


def said_of_regions(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "of region" in line or "heard again" in line]


ALIVE = ("east..0", "north..0", "west..0", "sagas-west..0")


async def test_when_a_region_is_lost_its_peer_says_so_once_and_once_when_it_is_heard_again(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.work(600, heard=ALIVE)
    assert said_of_regions(caplog) == []

    await peer.work(600, heard=ALIVE[1:])
    assert said_of_regions(caplog) == ["nothing was heard of region east for 136 s"]

    # A timer that runs speaks for its region as a feed does.
    await peer.work(600, heard=("$timer-east-sweep", *ALIVE[1:]))
    assert said_of_regions(caplog)[1:] == ["region east is heard again"]


async def test_when_a_region_is_lost_the_alert_has_a_value_for_as_long_as_that(peer: Peer) -> None:
    await peer.work(300, heard=ALIVE)
    await peer.work(600, heard=ALIVE[1:])

    of_east = [value for name, value, said in peer.told.values if said == {"of": "east"}]
    of_north = [value for name, value, said in peer.told.values if said == {"of": "north"}]
    assert {name for name, *_ in peer.told.values} == {SILENCE_SECONDS.name}
    assert max(of_north) <= 1.0
    assert of_east == sorted(of_east)
    assert of_east[-1] > 500.0


async def test_when_the_journal_takes_no_writes_no_region_is_called_lost(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.work(600, heard=ALIVE)
    peer.kept.takes_writes = False
    await peer.work(1_200, heard=())
    assert "the run of sweep could not be recorded: the write region is lost" in caplog.text

    # The peer's own record comes first, and every other region gets its time.
    peer.kept.takes_writes = True
    peer.told.values.clear()
    await peer.work(60, heard=())
    await peer.work(600, heard=ALIVE)

    assert said_of_regions(caplog) == []
    assert max(value for _, value, _ in peer.told.values) <= 1.0


async def test_when_a_process_did_not_sweep_for_long_it_does_not_call_a_region_lost_at_once(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.work(600, heard=ALIVE)
    peer.clock.now += 1_200.0
    peer.kept.seconds = dict.fromkeys(peer.kept.seconds, 1_200.0)
    await peer.work(60, heard=())
    await peer.work(600, heard=ALIVE)

    assert said_of_regions(caplog) == []


async def test_a_region_that_never_came_is_named_and_has_no_age(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.work(600, heard=("north..0", "west..0", "sagas-west..0"))

    assert said_of_regions(caplog) == ["nothing was heard of region east ever"]
    assert all(said == {"of": "north"} for _, _, said in peer.told.values)


@pytest.mark.parametrize(
    ("kept", "word", "shown"),
    [
        (Kept({"west..0": 7.4}), "", '<dd class="good">7 s ago</dd>'),
        (Kept({"west..0": 80.0}), "late", '<dd class="bad">nothing for 80 s</dd>'),
        (Kept({"west..0": 131.0}), "silent", f'<dd class="bad">nothing for 131 s {DOWN}</dd>'),
        (Kept({"west2..0": 7.4}), "silent", f'<dd class="bad">nothing ever {DOWN}</dd>'),
        (Kept(is_down=True), "not known", '<dd class="bad">not known</dd>'),
    ],
)
async def test_the_page_shows_when_the_other_region_was_heard(
    world: World, kept: Kept, word: str, shown: str
) -> None:
    world.east.health.heartbeats = hear(kept, "east", "east", "west", "west2")

    answer = await show_regions(world.east, ask(method="GET", path="/operate/regions"))

    text = answer.get_body().decode()
    assert answer.status_code == 200
    west = text.partition('id="region-west"')[2].partition("</section>")[0]
    assert f"<dt>Heard</dt>{shown}" in west
    title = west.partition("</h2>")[0]
    assert (f'<span class="bad">{word}</span>' in title) == bool(word)
    assert (f"west: {word}, from" in text) == (word in ("late", "silent"))
    assert "<dt>Heard</dt>" not in text.partition('id="region-west"')[0]

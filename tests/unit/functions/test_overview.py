"""The first page of the operations page: what the sweeps recorded, and who acts on it."""

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from functions.handlers import orders
from functions.http.bulk import describe_causes
from functions.http.operate import list_sessions, show_status
from functions.http.watch import tell_tail
from functions.page.overview import show_overview
from functions.page.regions import draw_hour
from shared.adapters.cosmos_leases import CosmosLeases
from shared.domain.errors import Unavailable
from shared.domain.overview import (
    MINUTES,
    NO_RECORD,
    Attention,
    Minute,
    RegionRecord,
    SagaCount,
    add_look,
    count_sagas,
    decode_look,
    encode_look,
    merge_records,
)
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.plan import SagaState
from shared.domain.saga.record import ListedSaga
from shared.domain.standstill import Cause, CountedCauses, StandstillKind
from shared.domain.wire import to_properties
from shared.engine.build import Services
from shared.engine.operate.heartbeats import SWEEP, Heartbeats
from shared.engine.operate.overview import COUNT_SECONDS, Overview
from shared.testkit.memory import MemoryContainer
from shared.testkit.memory_store import MemoryStore
from tests.asking import ask, document
from tests.saga_stage import Stage, order
from tests.world import IMPATIENT, REGIONS, World, message

NOW = 1_780_000_000.0


@dataclass
class Swept:
    """Two regions whose sweeps look around, at a time that is the store's and everybody's."""

    world: World
    leases: CosmosLeases = field(init=False)
    overviews: dict[str, Overview] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.clock.seconds = NOW
        self.leases = CosmosLeases(MemoryContainer(MemoryStore(self.world.clock)))
        for region in REGIONS:
            self.start(region)

    def services(self, region: str) -> Services:
        own = self.world.east if region == "east" else self.world.west
        return replace(own, overview=self.overviews.get(region))

    def start(self, region: str) -> None:
        """Put a new process in the place of the region's."""
        services, journal = self.services(region), self.world.journal
        health = services.health
        health.looks = None
        health.heartbeats = Heartbeats(
            self.leases, region, REGIONS, journal=journal, has_sagas=True
        )
        self.overviews[region] = Overview(
            services.standstills, self.leases, region, REGIONS, has_sagas=True
        )

    async def sweep(self, *regions: str, silent: float = 0.0) -> None:
        """Look around from regions as the sweep does, and let half a minute pass."""
        for region in regions:
            health = self.services(region).health
            assert health.heartbeats is not None
            seen = await self.overviews[region].look({"east": silent} if silent else {})
            await health.heartbeats.note(SWEEP, seen)
        self.world.clock.seconds += 30

    async def show(self, region: str = "west") -> str:
        self.start(region)
        response = await show_overview(self.services(region), ask(method="GET", path="/operate"))
        return response.get_body().decode()


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Swept:
    swept = Swept(World(policy=IMPATIENT))
    monkeypatch.setattr("functions.page.overview.time.time", lambda: swept.world.clock.seconds)
    return swept


def row_of(text: str, heading: str) -> str:
    """Return the text of the table's row that begins with a heading."""
    rows = (re.sub(r"<[^>]+>", " ", one) for one in text.split("<tr>"))
    return next(" ".join(one.split()) for one in rows if one.split()[:1] == [heading])


async def test_a_quiet_app_is_well_and_says_so_in_each_region(swept: Swept) -> None:
    assert "No sweep has recorded a look yet" in await swept.show()

    await swept.sweep("east", "west")

    for region in REGIONS:
        text = await swept.show(region)
        assert "All is well" in text
        assert 'class="bad' not in text
        assert "<script" not in text


async def test_halted_sessions_are_counted_with_the_oldest_and_a_link_before_what_is_less_urgent(
    swept: Swept,
) -> None:
    for number in range(3):
        session = f"acc-{number}"
        await swept.world.east.consumer.consume(message(0, session=session, kind="account.burn"))
        await swept.world.east.consumer.consume(message(1, session=session))
        swept.world.clock.seconds += 60
    # A gap of another session is none yet, and what waits behind a fault is none at all.
    await swept.world.east.consumer.consume(message(1, session="gap"))
    await swept.sweep("east")
    early = await swept.show()
    swept.world.clock.seconds += 400
    await swept.sweep("west")
    late = await swept.show()

    assert "Something needs attention" in early
    assert row_of(early, "halt").startswith("halt 3 ")
    assert "2026-05-28 20:26:40 UTC" in row_of(early, "halt")
    assert "<td>gap" not in early
    assert row_of(late, "gap").startswith("gap 1 ")
    assert late.index("kind=halt") < late.index("kind=gap")
    assert "/api/operate/faults?kind=halt" in late


async def test_a_region_of_which_nothing_is_heard_is_red_on_the_other_regions_page(
    swept: Swept,
) -> None:
    for _ in range(3):
        await swept.sweep("east", "west")
    for _ in range(2):
        await swept.sweep("west")
    late = await swept.show()
    for _ in range(3):
        await swept.sweep("west", silent=120.0)
    silent = await swept.show()

    assert "east late : heard 90 s ago: it should be each minute" in row_of(late, "east")
    assert '<strong class="bad">silent</strong>: heard 180 s ago' in silent
    assert "lies in the queue of west" in silent
    assert "east: silent, from" in silent
    assert row_of(silent, "west").startswith("west up : this page comes from here")
    # The region itself sees nothing wrong with itself once it is back.
    await swept.sweep("east", "west")
    assert row_of(await swept.show(), "east").startswith("east up :")


async def test_when_the_journal_is_silent_the_page_says_so_and_asks_again(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await swept.sweep("east", "west")

    async def fail() -> None:
        raise Unavailable("the account is gone")

    monkeypatch.setattr(swept.world.west.health, "read", fail)
    swept.start("west")
    request = ask(method="GET", path="/operate")
    response = await show_overview(swept.services("west"), request)

    text = response.get_body().decode()
    assert (response.status_code, response.headers["Refresh"]) == (503, "30")
    assert "The journal cannot be read from here: the account is gone" in text
    assert "not known" in row_of(text, "west")


async def test_when_a_look_fails_what_was_recorded_of_the_hour_stays(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await swept.world.east.consumer.consume(message(0, session="a"))
    await swept.sweep("east")
    before = await swept.leases.read("$timer-east-sweep")

    async def fail(*_: object) -> None:
        raise Unavailable("the journal is silent")

    monkeypatch.setattr(swept.world.journal, "open_report_times", fail)
    swept.world.clock.seconds += 60
    await swept.sweep("east")

    assert await swept.leases.read("$timer-east-sweep") == before
    assert decode_look(before).minutes["east"] == {int(NOW // 60): Minute(0.02, 0.0)}


async def test_when_there_is_no_record_yet_the_first_look_has_its_time(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = swept.leases.container
    read_told = container.read

    async def read(*place: str, **options: Any) -> Any:
        return await read_told(*place, **options | {"clock": None})

    monkeypatch.setattr(container, "read", read)
    await swept.sweep("east")

    record = decode_look(await swept.leases.read("$timer-east-sweep"))
    assert record.at == NOW
    assert [*record.minutes["west"]] == [int(NOW // 60)]


async def test_when_another_instance_takes_the_sweep_over_it_goes_on_with_the_hour(
    swept: Swept,
) -> None:
    await swept.sweep("east")
    swept.world.clock.seconds += 60
    swept.start("east")
    await swept.sweep("east")

    record = decode_look(await swept.leases.read("$timer-east-sweep"))
    assert len(record.minutes["east"]) == 2
    assert len(record.minutes["west"]) == 2


async def test_when_all_sweeps_stopped_what_was_counted_is_called_old(swept: Swept) -> None:
    await swept.sweep("east", "west")
    swept.world.clock.seconds += 300

    text = await swept.show()

    assert "no sweep has recorded a look since" in text
    assert "All is well" not in text


async def test_an_open_tab_reads_small_documents_and_the_journal_once(swept: Swept) -> None:
    await swept.sweep("east", "west")
    calls: list[str] = []
    intercept = swept.world.journal.intercept

    async def count(name: str, call: Any) -> Any:
        calls.append(name)
        return await intercept(name, call)

    swept.world.journal.intercept = count  # type: ignore[method-assign]
    await swept.show()

    assert calls == ["regions"]


async def test_status_tells_programs_the_same(swept: Swept) -> None:
    await swept.world.east.consumer.consume(message(0, session="a", kind="account.burn"))
    await swept.sweep("east")

    shown = document(await show_status(swept.services("west"), ask(method="GET")))["overview"]

    assert shown["attention"] == [
        {"kind": "halt", "count": 1, "more": False, "oldest": "2026-05-28T20:26:40+00:00"}
    ]
    assert shown["time"] == "2026-05-28T20:26:40+00:00"
    assert shown["rate"] == {"east": 0.02, "west": 0.0}


async def count(swept: Swept) -> dict[tuple[str, str], int]:
    """What a new process in west counts by kind and cause, from the records and what is newer."""
    swept.start("west")
    found = await describe_causes(swept.services("west"), {})
    return {(one["kind"], one["cause"][:9]): one["count"] for one in found["causes"]}


async def burn(swept: Swept, *sessions: str, kind: str = "account.burn") -> None:
    for session in sessions:
        await swept.world.east.consumer.consume(message(0, session=session, kind=kind))
    swept.world.clock.seconds += 1


async def test_causes_are_those_of_the_look_and_what_came_or_became_late_since(
    swept: Swept,
) -> None:
    assert await count(swept) == {}
    await burn(swept, "a", "b")
    swept.world.bus.unavailable.add("west")
    await burn(swept, "late")
    await swept.sweep("east")
    (cause,) = await count(swept)
    assert await count(swept) == {cause: 3}

    await burn(swept, "c")
    await burn(swept, "other", kind="account.none")
    await swept.world.east.consumer.consume(message(1, session="gap"))
    swept.world.clock.seconds += 400
    seen = await count(swept)

    fresh = await swept.world.west.standstills.causes()
    assert seen == {(one.kind.value, one.cause[:9]): one.count for one in fresh.causes}
    assert seen[cause] == 4
    assert {kind for kind, _ in seen} == {"halt", "gap", "pending"}
    # What is over is counted until the next look.
    skip = ResolutionRequest(ResolutionAction.SKIP, "Ada", "not needed")
    await swept.world.west.resolver.decide("a", skip)
    assert (await count(swept))[cause] == 4
    await swept.sweep("west")
    assert (await count(swept))[cause] == 3


async def test_where_much_was_counted_the_next_count_comes_later_and_hides_nothing(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.engine.operate.overview.COUNTED_OFTEN_MAX", 1)
    await burn(swept, "a", "b")
    await swept.sweep("east")
    await burn(swept, "c")
    await swept.sweep("east")
    assert await overview_of(swept) == 2
    assert [*(await count(swept)).values()] == [3]

    swept.world.clock.seconds += COUNT_SECONDS
    await swept.sweep("east")

    assert await overview_of(swept) == 3
    assert [*(await count(swept)).values()] == [3]


async def overview_of(swept: Swept) -> int:
    record = decode_look(await swept.leases.read("$timer-east-sweep"))
    return record.attention[StandstillKind.HALT].count


async def test_causes_that_a_record_has_no_room_for_are_counted_anew(
    swept: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.domain.overview.CAUSES_CHARACTERS_MAX", 1)
    await burn(swept, "a")
    await burn(swept, "other", kind="account.none")
    await swept.sweep("east")

    assert sorted((await count(swept)).values()) == [1, 1]
    assert await overview_of(swept) == 2


async def test_open_reports_are_counted_for_all_regions_with_a_link(swept: Swept) -> None:
    stray = message(0, session="stray")
    for region in REGIONS:
        rejecter = getattr(swept.world, region).rejecter
        await rejecter.reject("stray", to_properties(stray), stray.body, "no time")
    await swept.sweep("east")

    text = await swept.show()

    assert row_of(text, "report").startswith("report 1 ")
    assert "All is well" not in text
    assert "/api/operate/errors" in text


def test_a_record_is_read_as_it_was_written_and_keeps_an_hour() -> None:
    record = NO_RECORD
    counted = {StandstillKind.HALT: Attention(500, 7.0, is_more=True)}
    sagas = {SagaCount.RUNNING: Attention(3, 5.0), SagaCount.OVERDUE: Attention(1, 9.0)}
    halt = Cause(StandstillKind.HALT, "no flight …", "no flight 7", 500, 7.0)
    causes = CountedCauses((halt,), is_more=True, at=9.0, newest=8.0)
    for minute in range(2 * MINUTES):
        looked = {"east": Minute(1.5, 3.0), "west": Minute(0.0, 0.0, silent=130.0)}
        reports = Attention(2, minute * 60.0)
        record = add_look(record, minute * 60.0, counted, looked, reports, sagas, causes)

    text = encode_look(record)

    assert decode_look(text) == record
    assert [*record.minutes["west"]] == [*range(MINUTES, 2 * MINUTES)]
    assert len(text) < 3_000
    assert decode_look(text.replace(',"sagas":', ',"other":')) == replace(record, sagas={})
    for strange in (None, "", "[]", "no JSON", '{"at": 1}', '{"at": 1, "attention": {"x": 1}}'):
        assert decode_look(strange) == NO_RECORD


def test_of_two_records_the_newest_counts_and_the_minutes_of_both_are_shown() -> None:
    east = RegionRecord(
        60.0, {StandstillKind.HALT: Attention(1, 0.0)}, {"east": {1: Minute(5.0, 0.0)}}
    )
    west = RegionRecord(
        180.0, {}, {"east": {1: Minute(4.0, 0.0), 3: Minute(0.0, 9.0, silent=130.0)}}
    )

    merged = merge_records([west, east])

    assert (merged.at, merged.attention) == (180.0, {})
    assert merged.minutes["east"] == {1: Minute(4.0, 0.0), 3: Minute(0.0, 9.0, silent=130.0)}


def test_an_outage_is_one_band_for_each_run_of_silent_minutes() -> None:
    silent = {at: Minute(0.0, 0.0, silent=60.0 if at in (11, 14) else 0.0) for at in range(10, 16)}
    record = RegionRecord(15 * 60.0, {}, {"east": silent, "west": {15: Minute(2.0, 0.0)}})

    svg = draw_hour(record, ["east", "west"])

    told = re.findall(r"<title>(east: silent, from [^<]*)</title>", svg)
    spans = ["east: silent, from 00:10 to 00:12", "east: silent, from 00:13 to 00:15"]
    assert told == spans * 2
    assert "west: 2 messages a second at 00:15" in svg


async def test_sagas_that_run_wait_or_are_overdue_are_counted_with_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(orders.handlers)
    swept = Swept(stage)
    monkeypatch.setattr("functions.page.overview.time.time", stage.clock.today)
    # The store's time is everybody's.
    monkeypatch.setattr("shared.testkit.memory_store.EPOCH_SECONDS", 0.0)
    quiet = await swept.show()
    for key in ("o-1", "o-2", "o-3"):
        await stage.start(key, order(("p", 1), approval=60))
        await stage.clock.sleep(20)
    await stage.book("west").add_event("o-3", "approved")
    await swept.sweep("east", "west")
    early = await swept.show()
    plan = stage.record("o-1").plan
    assert plan is not None
    stage.clock.seconds = NOW + plan.seconds_max + 300 + 30
    await swept.sweep("west")
    late = await swept.show()

    assert "No saga is running" not in quiet
    assert row_of(early, "running").startswith("running 3 ")
    assert row_of(early, "waiting").startswith("waiting 2 ")
    assert "2026-05-28 20:26:40 UTC" in row_of(early, "waiting")
    assert "/api/operate/sagas?state=waiting" in early
    assert "All is well" in early
    assert row_of(late, "overdue").startswith("overdue 2 ")
    assert "Something needs attention" in late
    assert "starts sagas again that nobody drives" in late
    shown = document(await show_status(swept.services("west"), ask(method="GET")))["overview"]
    assert {name: one["count"] for name, one in shown["sagas"].items()} == {
        "running": 3,
        "waiting": 2,
        "overdue": 2,
    }


def test_of_more_sagas_than_are_counted_all_that_are_overdue_are_known() -> None:
    listed = [
        ListedSaga(str(n), SagaState.RUNNING, "k", f"2026-11-28T00:00:{n:02}", 0.0, 0.0, "east")
        for n in range(10)
    ]
    due = [replace(one, due=100.0 + n) for n, one in enumerate(listed)]

    found = count_sagas(due, 405.0, 300.0, 10)
    full = count_sagas(due[:4], 405.0, 300.0, 4)

    assert found[SagaCount.OVERDUE] == Attention(6, 100.0)
    assert (found[SagaCount.RUNNING].count, found[SagaCount.RUNNING].is_more) == (10, True)
    assert full[SagaCount.OVERDUE] == Attention(4, 100.0, is_more=True)
    assert SagaCount.WAITING not in found
    assert count_sagas([], 405.0, 300.0, 4) == {}


# Sessions by last change, and all of them followed.


async def test_sessions_are_listed_by_their_last_change_and_by_state_page_by_page(
    world: World,
) -> None:
    for number, session in enumerate(("a", "b", "c", "a")):
        world.clock.seconds += 10
        sequence = int(number == 3)
        await world.east.consumer.consume(message(sequence, session=session))
    await world.east.consumer.consume(message(0, session="d", kind="account.burn"))

    async def page(**params: str) -> dict[str, Any]:
        found: dict[str, Any] = document(await list_sessions(world.west, ask(query=params)))
        return found

    first = await page(order="changed", limit="2")
    last = await page(order="changed", limit="2", after=first["after"])
    halted = await page(state="halted")

    assert {one["session"] for one in first["sessions"]} == {"a", "d"}
    # The older entry of `a` does not show it again.
    assert [one["session"] for one in last["sessions"]] == ["c", "b"]
    assert [one["session"] for one in halted["sessions"]] == ["d"]
    assert halted["after"] is None
    for wrong in ({"order": "size"}, {"state": "well"}, {"order": "changed", "prefix": "a"}):
        assert (await page(**wrong))["type"] == "InvalidMessage"


async def test_all_sessions_are_followed_from_a_time_on_and_claims_are_left_out(
    world: World,
) -> None:
    start = document(await tell_tail(world.west, ask(method="GET")))
    await world.east.consumer.consume(message(0, session="a"))
    world.clock.seconds += 3
    await world.east.consumer.consume(message(0, session="b"))

    async def tail(**params: str) -> dict[str, Any]:
        found: dict[str, Any] = document(await tell_tail(world.west, ask(query=params)))
        return found

    found = await tail(since=str(start["until"]))
    cut = await tail(since="0", limit="1")

    assert [(one["session"], one["position"]) for one in found["changes"]] == [("a", 0), ("b", 0)]
    assert (found["until"], found["more"]) == (3, False)
    assert (cut["until"], cut["more"]) == (0, True)
    assert json.dumps(found["changes"]).count("amounts") == 0
    assert (await tail(since="soon"))["type"] == "InvalidMessage"

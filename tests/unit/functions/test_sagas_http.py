"""The HTTP triggers and the feed of sagas, with a task hub that only remembers what it hears."""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import OrchestrationStatus

from functions.handlers import orders
from functions.http import sagas
from functions.http.operate import find_session
from functions.page.page import answer_saga_form, show_saga_steps, show_timeline
from functions.page.saga_picture import WIDTH, draw_parts
from functions.triggers import saga_instances
from functions.triggers.saga_drive import CHANGED
from functions.triggers.sagas import log_alert
from shared.domain import next_entry
from shared.domain.saga.plan import SagaState, Wait, instance_of, traceparent_of
from shared.domain.saga.record import SagaRecord
from shared.domain.saga.walk import AwaitChange
from shared.engine.sagas import sagas as sagas_engine
from shared.engine.sagas.sagas import RecordedSaga
from shared.storage.entries import encode_entry
from tests.asking import ask
from tests.saga_stage import Stage, order, stocked

PLACED = order(("p", 60), approval=60)
INSTANCE = instance_of("o-1")

type Answer = tuple[int, Any]


class Missing(grpc.aio.AioRpcError):  # type: ignore[misc]
    """The task hub's answer for what it does not know, or knows already."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code, None, None, "")


@dataclass
class Hub:
    """A client of a task hub."""

    instances: dict[str, Any] = field(default_factory=dict)
    woken: list[str] = field(default_factory=list)
    # Why it cannot be reached.
    lost: grpc.StatusCode | None = None
    # Why instances with these ids are not started, and the statuses of some that are there.
    refused: dict[str, grpc.StatusCode] = field(default_factory=dict)
    statuses: dict[str, OrchestrationStatus] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    is_silent: bool = False

    async def schedule_new_orchestration(
        self, name: str, *, instance_id: str, **options: Any
    ) -> str:
        if refused := self.lost or self.refused.get(instance_id):
            raise Missing(refused)
        if instance_id in self.instances:
            raise Missing(grpc.StatusCode.ALREADY_EXISTS)
        assert name == saga_instances.ORCHESTRATOR
        self.instances[instance_id] = json.loads(json.dumps(options["input"]))
        return instance_id

    async def raise_orchestration_event(self, instance_id: str, event: str) -> None:
        if self.lost or instance_id not in self.instances:
            raise Missing(self.lost or grpc.StatusCode.NOT_FOUND)
        assert event == CHANGED
        self.woken.append(instance_id)

    async def get_orchestration_state(self, instance_id: str, *, fetch_payloads: bool) -> Any:
        assert not fetch_payloads
        self.asked.append(instance_id)
        if self.is_silent:
            await asyncio.Event().wait()
        if self.lost:
            raise Missing(self.lost)
        if instance_id not in self.instances:
            return None
        running = OrchestrationStatus.RUNNING
        return SimpleNamespace(runtime_status=self.statuses.get(instance_id, running))

    async def purge_orchestration(self, instance_id: str) -> None:
        assert self.statuses.pop(instance_id) in saga_instances.FINISHED
        del self.instances[instance_id]


@dataclass
class Region:
    """A region's triggers."""

    stage: Stage
    name: str = "east"
    hub: Any = field(default_factory=Hub)

    async def ask(self, do: Any, body: str = "", *, key: str = "o-1", **asked: Any) -> Answer:
        """Status and document of an answer."""
        route = {"key": key, "event": asked.pop("event", "")}
        services = self.stage.worker(self.name)
        answer = await do(services, ask(body, route=route, query=asked), self.hub)
        return answer.status_code, json.loads(answer.get_body())

    async def show(self, key: str = "o-1") -> Answer:
        """What a saga is described as."""
        request = ask(route={"key": key})
        answer = await sagas.describe_saga_over_http(self.stage.worker(self.name), request)
        return answer.status_code, json.loads(answer.get_body())

    async def start(self, body: str = PLACED, key: str = "o-1") -> Answer:
        return await self.ask(sagas.start_saga_over_http, body, key=key, type="order.place")

    async def tell(self, event: str) -> Answer:
        return await self.ask(sagas.add_event_over_http, event=event)

    async def feed(self) -> None:
        """Show the change feed every entry of the saga's session."""
        documents = [
            encode_entry(entry)
            for position in range(len(self.stage.entries("saga:o-1")))
            if (entry := self.stage.journal.entry_at("saga:o-1", position))
        ]
        services = self.stage.worker(self.name)
        await saga_instances.begin_instances(
            services, self.stage.book(self.name), self.hub, documents
        )


@pytest.fixture
async def stage() -> Stage:
    return await stocked(Stage(orders.handlers), ["p"], 100)


@pytest.fixture
def east(stage: Stage) -> Region:
    return Region(stage)


@pytest.fixture
def west(stage: Stage) -> Region:
    return Region(stage, "west")


async def test_a_start_is_recorded_and_has_an_instance_that_walks_at_once(east: Region) -> None:
    status, document = await east.start()
    again, _ = await east.start()

    assert (status, again) == (202, 202)
    assert document["links"]["self"] == "sagas/o-1"
    assert list(east.hub.instances) == [INSTANCE]
    assert east.hub.instances[INSTANCE]["stand_by_seconds"] == 0


@pytest.mark.parametrize(
    ("params", "body", "status", "kind"),
    [
        ({"type": "order.place"}, "{", 400, "InvalidBody"),
        ({"type": "order.place"}, "{}", 400, "InvalidBody"),
        ({"type": "order.submit"}, "{}", 400, "UnknownType"),
        ({"type": "nothing"}, "{}", 400, "UnknownType"),
        ({}, PLACED, 400, "InvalidMessage"),
        ({"type": "order.place", "time": "now"}, PLACED, 400, "InvalidMessage"),
        ({"type": "order.place"}, '{"a":"' + "x" * 1_000_000 + '"}', 413, "TooLarge"),
    ],
)
async def test_a_bad_start_is_refused_by_name(
    east: Region, params: dict[str, str], body: str, status: int, kind: str
) -> None:
    found, problem = await east.ask(sagas.start_saga_over_http, body, **params)

    assert (found, problem["type"]) == (status, kind)
    assert east.stage.entries("saga:o-1") == []


async def test_other_content_under_the_key_is_a_conflict(east: Region, west: Region) -> None:
    await east.start()

    status, problem = await west.start(order(("p", 1)))

    assert (status, problem["type"]) == (409, "SagaRefused")
    assert west.hub.instances == {}


async def test_the_feed_gives_each_region_its_instance(east: Region, west: Region) -> None:
    await east.start()
    await east.feed()
    await west.feed()
    await west.feed()

    assert east.hub.instances.keys() == west.hub.instances.keys() == {INSTANCE}
    assert west.hub.instances[INSTANCE]["stand_by_seconds"] == 30
    assert (east.hub.woken, west.hub.woken) == ([], [])


async def test_an_event_wakes_the_instance_here_and_by_the_feed_there(
    east: Region, west: Region
) -> None:
    await east.start()
    await west.feed()

    status, _ = await east.tell("approved")
    await west.feed()

    assert status == 202
    assert east.hub.woken == west.hub.woken == [INSTANCE]


async def test_an_event_for_a_saga_to_come_wakes_nobody(east: Region) -> None:
    status, _ = await east.tell("approved")

    assert status == 202
    assert [(await east.show(key))[0] for key in ("o-1", "o-2")] == [200, 404]
    assert east.hub == Hub()


@pytest.mark.parametrize("event", ["cancelled", "timeout:approval", "a b", "x" * 65])
async def test_what_only_the_saga_itself_may_say_is_refused(east: Region, event: str) -> None:
    status, problem = await east.tell(event)

    assert (status, problem["type"]) == (400, "InvalidMessage")


async def test_a_cancelled_saga_cannot_be_approved(east: Region) -> None:
    await east.start()

    cancelled, _ = await east.ask(sagas.cancel_over_http)
    status, problem = await east.tell("approved")

    assert cancelled == 202
    assert (status, problem["detail"]) == (409, "approval was decided: cancelled")


async def test_a_saga_that_is_over_gets_no_new_instance(east: Region, west: Region) -> None:
    await east.stage.book().add_event("o-1", "approved")
    await east.stage.run("o-1", PLACED)

    status, document = await west.start()
    await west.feed()

    assert (status, document["state"]) == (202, "completed")
    assert west.hub == Hub()


async def test_a_saga_is_shown_with_what_each_step_came_to(east: Region) -> None:
    await east.start()
    going = (await east.stage.walk("o-1")).steps()
    while len(east.stage.entries("stock:p")) < 2:
        await anext(going)

    _, shown = await Region(east.stage, "west").show()

    assert [step["outcome"] for step in shown["steps"]] == ["done", "done", None, None, None]
    assert (shown["state"], shown["kind"]) == ("running", "order.place")
    assert shown["waits"] == [
        {
            "name": "approval",
            "decision": None,
            "at": None,
            "onward": ["approved"],
            "back": ["rejected"],
        }
    ]


async def test_the_page_of_a_saga_says_what_has_not_begun_and_what_never_will(east: Region) -> None:
    async def read_page() -> str:
        response = await show_saga_steps(
            east.stage.worker(), ask(path="/operate/saga", query={"key": "o-1"})
        )
        return response.get_body().decode()

    await east.stage.book().add_event("o-1", "rejected")
    assert "has not started" in await read_page()

    await east.start()
    running = await read_page()
    assert ("running, started" in running, "none yet" in running) == (True, True)
    assert "It is overdue" not in running
    await east.stage.clock.sleep(5_000)
    assert "It is overdue" in await read_page()

    await east.stage.run("o-1", PLACED)
    ended = await read_page()
    assert "order.place: compensated" in ended
    assert ("never begun" in ended, "none yet" in ended) == (True, False)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
async def test_a_task_hub_out_of_reach_is_left_to_the_feed(
    east: Region, code: grpc.StatusCode
) -> None:
    east.hub.lost = code

    assert (await east.start())[0] == 202
    assert (await east.tell("approved"))[0] == 202
    with pytest.raises(Missing):
        await east.feed()

    east.hub.lost = None
    await east.feed()
    assert east.hub.woken == [INSTANCE]


async def list_sagas(region: Region, **asked: str) -> Answer:
    answer = await sagas.list_over_http(region.stage.worker(region.name), ask(query=asked))
    return answer.status_code, json.loads(answer.get_body())


async def test_sagas_are_listed_from_their_journals_alike_in_every_region(
    east: Region, west: Region
) -> None:
    assert await list_sagas(east) == (200, {"sagas": [], "after": None, "request_units": 0.0})
    for key in ("o-2", "o-1", "p-1"):
        await east.start(key=key)
    await east.stage.clock.sleep(1)
    await west.tell("rejected")
    await east.stage.run("o-1", PLACED)
    await west.stage.book("west").add_event("late", "approved")

    (_, everything), (_, there) = await list_sagas(east), await list_sagas(west)
    assert everything == there
    assert [(one["key"], one["state"], one["kind"]) for one in everything["sagas"]] == [
        ("late", "awaited", None),
        ("o-1", "compensated", "order.place"),
        ("o-2", "running", "order.place"),
        ("p-1", "running", "order.place"),
    ]
    first = everything["sagas"][1]
    assert first["started"] == east.stage.record("o-1").at
    assert first["links"] == {"self": "sagas/o-1"}
    assert first["changed"] > everything["sagas"][2]["changed"]

    async def keys(**asked: str) -> tuple[list[str], str | None]:
        _, found = await list_sagas(west, **asked)
        return [one["key"] for one in found["sagas"]], found["after"]

    assert await keys(state="running") == (["o-2", "p-1"], None)
    assert await keys(state="running", prefix="o") == (["o-2"], None)
    assert await keys(state="completed") == ([], None)
    assert await keys(prefix="o-") == (["o-1", "o-2"], None)
    assert await keys(limit="3") == (["late", "o-1", "o-2"], "o-2")
    assert await keys(limit="3", after="o-2") == (["p-1"], None)
    assert await keys(state="running", limit="1") == (["o-2"], "o-2")
    assert await keys(state="running", after="o-2") == (["p-1"], None)


async def keys(region: Region, **asked: str) -> list[str]:
    """The keys of all pages, none of which is longer than `limit`."""
    listed, after = list[str](), asked.pop("after", "")
    while True:
        _, found = await list_sagas(region, **asked, after=after)
        assert len(found["sagas"]) <= int(asked.get("limit", "100"))
        listed += [one["key"] for one in found["sagas"]]
        after = found["after"]
        if after is None:
            return listed


async def test_running_sagas_are_listed_by_what_is_counted_of_them(
    east: Region, west: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("o 2", "o-1", "p-1", "q-1"):
        await east.start(key=key)
        await east.stage.clock.sleep(10)
    await east.tell("approved")

    assert await keys(west, state="running") == ["o 2", "o-1", "p-1", "q-1"]
    assert await keys(west, state="waiting") == ["o 2", "p-1", "q-1"]
    assert await keys(west, state="waiting", prefix="o") == ["o 2"]
    assert await keys(west, state="overdue") == []
    plan = east.stage.record("o-1").plan
    assert plan is not None
    await east.stage.clock.sleep(plan.seconds_max + 300 - 35)
    assert await keys(west, state="overdue") == ["o 2"]
    await east.stage.clock.sleep(60)
    # The newest first, and of a page that ends at a key with a space the next one, too.
    for limit in ("1", "2", "9"):
        assert await keys(west, state="overdue", limit=limit) == ["q-1", "p-1", "o-1", "o 2"]
    _, found = await list_sagas(west, state="running", limit="1")
    (shown,) = found["sagas"]
    assert (shown["waits"], shown["overdue"]) == ("approval", True)
    assert shown["due"] > shown["started"]
    monkeypatch.setattr(sagas, "LOOKED_MAX", 1)
    assert await keys(west, state="waiting") == ["o 2", "p-1", "q-1"]


async def test_sagas_are_listed_by_last_change_and_by_kind(east: Region, west: Region) -> None:
    for key in ("o-1", "o-2", "o-3", "o-4"):
        # Two of them in one second.
        await east.stage.clock.sleep(10 * (key != "o-3"))
        await east.start(key=key)
    await east.stage.clock.sleep(10)
    await west.tell("approved")

    for limit in ("1", "2", "3", "9"):
        found = await keys(west, order="changed", limit=limit)
        assert found == ["o-1", "o-4", "o-2", "o-3"]
    assert await keys(west, order="changed", state="waiting") == ["o-4", "o-2", "o-3"]
    assert await keys(west, kind="order.place", limit="3") == ["o-1", "o-2", "o-3", "o-4"]
    assert await keys(west, kind="order.submit") == []
    for wrong in (
        {"order": "size"},
        {"order": "changed", "prefix": "o"},
        {"order": "changed", "after": "o-1"},
    ):
        assert (await list_sagas(west, **wrong))[1]["type"] == "InvalidMessage"


@pytest.mark.parametrize("wanted", ["lost", "compensating", "Running"])
async def test_a_state_that_no_journal_has_is_refused_with_those_that_there_are(
    east: Region, wanted: str
) -> None:
    status, problem = await list_sagas(east, state=wanted)

    assert (status, problem["type"]) == (400, "InvalidMessage")
    assert "known: awaited, running, completed, compensated" in problem["detail"]


async def test_what_else_lies_in_a_sagas_session_does_not_stop_the_feed(east: Region) -> None:
    await east.start()
    await east.stage.tell("saga:odd", "account.deposit", '{"amount":1}')
    strange = {"kind": "entry", "session": "saga:odd", "state": {"state": 1}}
    other = {"kind": "marker", "session": "saga:o-1"}
    services, book = east.stage.worker(), east.stage.book()

    await saga_instances.begin_instances(services, book, east.hub, [strange, other])

    assert list(east.hub.instances) == [INSTANCE]


async def test_when_a_large_record_changed_a_little_the_feed_notices(
    east: Region, west: Region
) -> None:
    with patch.multiple(next_entry, STATE_INLINE_BYTES_MAX=300, CHANGE_PART=1):
        await east.start()
        await east.tell("approved")
    *_, last = east.stage.entries("saga:o-1")
    services, book = west.stage.worker(west.name), west.stage.book(west.name)

    await saga_instances.begin_instances(services, book, west.hub, [last])

    assert last["change"]["operations"]
    assert list(west.hub.instances) == [INSTANCE]


def test_an_end_that_needs_a_person_is_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    work = {"key": "o-1", "reason": "reserve.p: burnt"}
    for state in SagaState:
        log_alert(work, state)

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "saga 'o-1' is compensation-failed: reserve.p: burnt",
        "saga 'o-1' is unfinished: reserve.p: burnt",
    ]


# Who decides, and why.


def answers(stage: Stage, session: str = "saga:o-1") -> list[Any]:
    return [entry.get("answer") for entry in stage.entries(session)]


async def test_the_entry_of_an_event_says_who_decided_it_and_why(east: Region) -> None:
    await east.start()
    said = json.dumps({"who": "Ada", "why": "the customer called"})

    for body in (said, said, json.dumps({"who": "Bob", "why": "me too"})):
        status, _ = await east.ask(sagas.add_event_over_http, body, event="approved")
        assert status == 202

    assert [(one["event"], one["who"], one["why"]) for one in answers(east.stage)[1:]] == [
        ("approved", "Ada", "the customer called"),
        ("approved", "Bob", "me too"),
    ]
    assert east.stage.record("o-1").events == ("approved",)


@pytest.mark.parametrize("body", ["", "{", "[1]", '{"order":"o-1"}', "[" * 100_000, '"who"'])
async def test_a_body_that_names_nobody_is_not_read(east: Region, body: str) -> None:
    await east.start()

    status, _ = await east.ask(sagas.add_event_over_http, body, event="approved")

    assert (status, answers(east.stage)[-1]["who"]) == (202, None)


@pytest.mark.parametrize(
    "said",
    [
        {"who": "Ada"},
        {"why": "because"},
        {"who": "", "why": "because"},
        {"who": "Ada", "why": 1},
        {"who": "Ada\nEve", "why": "because"},
        {"who": "A" * 129, "why": "because"},
        {"who": "Ada", "why": "w" * 1001},
    ],
)
@pytest.mark.parametrize("change", [sagas.add_event_over_http, sagas.cancel_over_http])
async def test_who_without_why_or_what_nobody_can_have_written_is_refused(
    east: Region, change: Any, said: dict[str, Any]
) -> None:
    await east.start()

    status, problem = await east.ask(change, json.dumps(said), event="approved")

    assert (status, problem["type"] in ("InvalidBody", "InvalidMessage")) == (400, True)
    assert len(east.stage.entries("saga:o-1")) == 1


async def test_a_cancellation_says_who_decided_it_where_it_stops_the_saga(east: Region) -> None:
    await east.start()
    said = json.dumps({"who": "Ada", "why": "it is sold out"})

    statuses = [(await east.ask(sagas.cancel_over_http, body))[0] for body in (said, said, "")]

    assert statuses == [202, 202, 202]
    assert answers(east.stage)[1]["who"] == "Ada"
    stopped = east.stage.record("o-1").plan
    assert stopped is not None
    (tombstone,) = east.stage.entries(stopped.stage(stopped.turn).steps[0].do.session)[-1:]
    assert tombstone["reason"].endswith("cancelled by Ada: it is sold out")


async def post(region: Region, **fields: str) -> Any:
    request = ask(urlencode(fields), path="/operate/saga")
    return await answer_saga_form(region.stage.worker(region.name), request, region.hub)


async def test_the_page_starts_tells_and_cancels_as_its_forms_say(east: Region) -> None:
    started = await post(east, kind="order.place", key="o-1", body=PLACED)
    assert (started.status_code, started.headers["Location"]) == (303, "/api/operate/saga?key=o-1")
    assert list(east.hub.instances) == [INSTANCE]

    page = await show_saga_steps(
        east.stage.worker(), ask(path="/operate/saga", query={"key": "o-1"})
    )
    for event in ("approved", "rejected", "cancelled"):
        assert f'name="event" value="{event}"' in page.get_body().decode()

    told = await post(east, key="o-1", event="cancelled", who="Ada", why="a mistake")
    assert told.status_code == 303
    assert answers(east.stage)[-1]["why"] == "a mistake"

    late = await post(east, key="o-1", event="approved", who="Ada", why="after all")
    assert late.status_code == 409
    assert "approval was decided: cancelled" in late.get_body().decode()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"key": "o-1", "event": "approved", "who": "Ada"}, 400),
        ({"key": "o-1", "event": "approved", "why": "because"}, 400),
        ({"key": "o-1", "event": "timeout:approval", "who": "Ada", "why": "because"}, 400),
        ({"key": "o-1", "event": "", "who": "Ada", "why": "because"}, 400),
        ({"key": "", "event": "approved", "who": "A", "why": "w"}, 400),
        ({"key": "k" * 124, "kind": "order.place", "body": PLACED}, 400),
        ({"key": "o-9", "kind": "order.submit", "body": "{}"}, 400),
        ({"key": "o-9", "kind": "order.place", "body": "{"}, 400),
        ({"key": "o-1", "event": "approved", "who": "A", "why": "w", "other": "x"}, 400),
    ],
)
async def test_a_form_that_cannot_be_is_a_page_that_says_why_and_changes_nothing(
    east: Region, fields: dict[str, str], status: int
) -> None:
    await east.start()
    before = east.stage.taken()

    answer = await post(east, **fields)

    assert answer.status_code == status
    assert 'role="alert"' in answer.get_body().decode()
    assert east.stage.taken() == before


# What became of it, and when.


async def read_page(region: Region, key: str = "o-1") -> str:
    request = ask(path="/operate/saga", query={"key": key})
    return (await show_saga_steps(region.stage.worker(), request)).get_body().decode()


async def walked(east: Region, event: str) -> Any:
    """A saga to its end, in which each step and the decision take a second."""
    await east.start()
    stage = east.stage
    await stage.clock.sleep(1)
    walk = await stage.walk("o-1")
    async for request in walk.steps():
        if isinstance(request, AwaitChange):
            await stage.clock.sleep(5)
            await stage.book().add_event("o-1", event)
        await stage.clock.sleep(1)
    _, shown = await east.show()
    return shown


async def test_a_saga_says_when_and_where_each_step_was_recorded(east: Region) -> None:
    shown = await walked(east, "approved")

    assert shown["state"] == "completed"
    written = {
        (session, int(document["id"])): document["_ts"]
        for session, kept in east.stage.journal.partitions.items()
        for document in kept.values()
        if document["kind"] == "entry"
    }
    plan = east.stage.record("o-1").plan
    assert plan is not None
    for step, said in zip(plan.steps, shown["steps"], strict=True):
        at = datetime.fromisoformat(said["done"]["at"]).timestamp()
        assert at == written[(step.do.session, said["done"]["position"])]
        assert said["undone"] is None
    times = [step["done"]["at"] for step in shown["steps"]]
    assert times == sorted(times)
    assert times[0] < shown["waits"][0]["at"] < times[-1] <= shown["ended"]
    assert shown["trace"] == traceparent_of("o-1").split("-")[1]


async def test_the_entries_of_its_sessions_name_the_saga_and_link_to_it(east: Region) -> None:
    await walked(east, "approved")
    services = east.stage.worker()

    _, shown = await find_session(services, "stock:p")
    assert [one.get("saga") for one in shown["head"]["messages"]] == ["o-1"]
    request = ask(path="/operate/session", query={"session": "stock:p"})
    page = (await show_timeline(services, request)).get_body().decode()
    assert 'a command of saga <a href="/api/operate/saga?key=o-1">o-1</a>' in page
    request = ask(path="/operate/session", query={"session": "saga:o-1"})
    page = (await show_timeline(services, request)).get_body().decode()
    assert 'the journal of saga <a href="/api/operate/saga?key=o-1">o-1</a>' in page


async def test_the_picture_has_every_part_in_order_and_a_rejection_is_not_red(
    east: Region,
) -> None:
    await walked(east, "rejected")
    record, history = await read_both(east)

    parts = draw_parts(record, history)

    assert record.plan is not None
    names = [[row.name for row in part.rows] for part in parts]
    assert names == [
        [part.name] if isinstance(part, Wait) else [step.name for step in part.steps]
        for part in record.plan.parts
    ]
    rows = [row for part in parts for row in part.rows]
    assert "bad" not in {row.look for row in rows}
    assert {bar.look for row in rows for bar in row.bars} == {"good", "plain", "undone"}
    for row in rows:
        for bar in row.bars:
            assert 0 <= bar.x <= bar.x + bar.width <= WIDTH
    begun = [row.bars[0].x for row in rows if row.bars]
    assert begun == sorted(begun)
    assert len(set(begun)) == sum(any(row.bars for row in part.rows) for part in parts) == 3
    page = await read_page(east)
    assert 'class="bad"' not in page
    assert page.index("approval</strong>: ") > page.index("reserve.p</strong>: ")


async def test_the_picture_says_until_when_the_part_may_take_at_which_the_saga_is(
    east: Region,
) -> None:
    async def untils() -> dict[str, float]:
        rows = [row for part in draw_parts(*await read_both(east)) for row in part.rows]
        return {row.name: row.until.seconds for row in rows if row.until}

    await east.start()
    (tried,) = (await untils()).items()
    walk = await east.stage.walk("o-1")
    async for request in walk.steps():
        if isinstance(request, AwaitChange):
            break
    await east.stage.clock.sleep(5)
    waited = await untils()
    await walked(east, "rejected")

    # A step is tried five times for 30 s, with pauses between; a wait begins when that is done.
    assert tried == ("submit", 5 * 30 + 1 + 2 + 4 + 8)
    assert waited == {"approval": 60.0}
    assert await untils() == {}


async def read_both(region: Region) -> tuple[SagaRecord, RecordedSaga]:
    book = region.stage.book()
    record = await book.read_record("o-1")
    assert record is not None
    return record, await book.read_history("o-1", record)


async def test_when_the_entries_are_compacted_away_outcomes_stay_and_times_do_not(
    east: Region,
) -> None:
    await walked(east, "approved")
    for session, kept in east.stage.journal.partitions.items():
        if not session.startswith("saga:"):
            kept.clear()

    _, shown = await east.show()

    assert {step["outcome"] for step in shown["steps"]} == {"done"}
    assert {step["done"] for step in shown["steps"]} == {None}
    assert "completed, started" in await read_page(east)


async def test_a_look_at_a_saga_of_very_many_steps_reads_some_of_them(
    east: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    await walked(east, "approved")
    monkeypatch.setattr(sagas_engine, "STEPS_READ_MAX", 2)
    east.stage.fault_plan.made.clear()

    _, shown = await east.show()

    assert [step["done"] is not None for step in shown["steps"]] == [True, True, *[False] * 3]
    assert {step["outcome"] for step in shown["steps"]} == {"done"}
    assert east.stage.fault_plan.made.count("marker") == 2

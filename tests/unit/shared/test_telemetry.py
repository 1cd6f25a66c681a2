"""Traces and measures: one trace over both regions, whose outputs are the same bytes in each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from functions.handlers.orders import handlers
from functions.http.ingest import accept
from functions.triggers.receive import receive_message
from shared.adapters.telemetry import EffectIds, OpenTelemetry, digest_name, sample
from shared.domain import wire
from shared.domain.message import Message
from shared.domain.outbox import DestinationBatch
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.saga.plan import traceparent_of
from shared.domain.trace import Trace, sample_trace
from shared.domain.wire import read_traceparent
from shared.engine.publish.publish import Producer
from shared.settings import Settings
from shared.storage.documents import decode_message, digest_batches, encode_message
from shared.wiring import connect, listen
from tests.business import LEASE_OVER, Outside, business, dying
from tests.deliveries import delivery_of
from tests.programs import run_python
from tests.saga_stage import Stage, order, stocked
from tests.unit.functions.test_ingest import post
from tests.unit.shared.test_settings import ENVIRONMENT
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, message, require
from tests.world import handlers as world_handlers

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@dataclass
class Collector:
    """Telemetry of both regions, as it would be sent."""

    ratio: float = 1.0
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        spans = self.provider = TracerProvider(sample(self.ratio), id_generator=EffectIds())
        spans.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        self.telemetry = {region: OpenTelemetry(region, spans, meters) for region in REGIONS}

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if name in one.name]

    def values(self) -> dict[str, float]:
        """Every measure, summed over its attributes; for what was timed, how often."""
        data = self.reader.get_metrics_data()
        found: dict[str, float] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points: Iterable[Any] = metric.data.data_points
                    found[metric.name.removeprefix("lockstep.")] = sum(
                        float(one.value if hasattr(one, "value") else one.count) for one in points
                    )
        return found


def said(span: ReadableSpan) -> Mapping[str, Any]:
    return {name.removeprefix("lockstep."): v for name, v in (span.attributes or {}).items()}


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """The trace of a span, its own id, and its parent's."""
    context = require(span.get_span_context())
    parent = f"{span.parent.span_id:016x}" if span.parent else ""
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", parent


def traced(sequence: int, kind: str = "account.bill") -> Message:
    return replace(message(sequence, kind=kind), traceparent=TRACEPARENT)


async def test_outputs_are_the_same_in_both_regions_and_follow_from_the_one_effect() -> None:
    collector = Collector()
    world = World(telemetry=collector.telemetry)
    other = World()

    await receive_message(world.east, delivery_of(traced(0)))
    await receive_message(world.west, delivery_of(traced(0)))
    # A region that tells nothing, and another process, make the same.
    await receive_message(other.west, delivery_of(traced(0)))

    (effect,) = collector.spans("effect")
    trace, span, _ = ids(effect)
    (output,) = world.bus.messages("east", "out")
    assert [output] == world.bus.messages("west", "out") == other.bus.messages("west", "out")
    assert output.traceparent == f"00-{trace}-{span}-01"
    assert trace == TRACE
    assert said(effect) == {
        "region": "east",
        "session": digest_name("acc-7"),
        "message": digest_name(traced(0).id),
        "position": 0,
        "status": "completed",
    }
    received = collector.spans("receive")
    assert {ids(one)[0] for one in received} == {TRACE}
    assert [said(one)["outcome"] for one in received] == ["processed", "duplicate"]


async def test_when_the_owner_of_a_claim_dies_the_other_region_goes_on_in_the_trace() -> None:
    collector = Collector()
    outside = Outside()
    world = World(telemetry=collector.telemetry, handlers=business(outside))

    outside.before = dying(world)
    with pytest.raises(RuntimeError, match="ProcessKilled"):
        await receive_message(world.east, delivery_of(traced(0, "account.pay")))
    outside.before = Outside().before
    await world.clock.sleep(LEASE_OVER)
    await receive_message(world.west, delivery_of(traced(0, "account.pay")))

    told = [(one.name, said(one)["region"]) for one in collector.spans()]
    assert told == [
        ("claim", "east"),
        ("receive", "east"),
        ("effect", "west"),
        ("take over", "west"),
        ("receive", "west"),
    ]
    assert {ids(one)[0] for one in collector.spans()} == {TRACE}
    (effect,) = collector.spans("effect")
    assert ids(effect)[1] == Trace.of(traced(0, "account.pay")).effect
    assert collector.values()["takeovers"] == 1


async def test_a_drained_message_stays_in_its_own_trace_linked_to_who_drained_it() -> None:
    collector = Collector()
    world = World(telemetry=collector.telemetry, policy=POLICY)

    await receive_message(world.east, delivery_of(traced(1)))
    await receive_message(world.east, delivery_of(replace(traced(0), traceparent=None)))

    (drained,) = collector.spans("effect")
    waited, drainer = collector.spans("receive")
    assert said(drained)["position"] == 2
    assert ids(drained)[0] == ids(waited)[0] == TRACE
    assert [f"{link.context.trace_id:032x}" for link in drained.links] == [ids(drainer)[0]]
    assert ids(drainer)[0] != TRACE


async def test_ingest_goes_on_with_the_trace_of_its_caller() -> None:
    collector = Collector()
    world = World(telemetry=collector.telemetry)

    await accept(world.east, post(headers={"traceparent": TRACEPARENT}))
    await accept(world.east, post(key="order-2", headers={"traceparent": "00-forged"}))

    first, second = collector.spans("ingest")
    sent, other = world.bus.messages("east", "in")
    assert ids(first)[::2] == (TRACE, "00f067aa0ba902b7")
    for span, one in ((first, sent), (second, other)):
        assert one.traceparent
        assert one.traceparent.split("-")[1:3] == list(ids(span)[:2])
    assert ids(second)[0] != TRACE


async def test_where_nobody_listens_a_callers_trace_is_handed_on_and_none_is_begun() -> None:
    world = World()

    await accept(world.east, post(headers={"traceparent": TRACEPARENT}))
    await accept(world.east, post(key="order-2"))

    assert [one.traceparent for one in world.bus.messages("west", "in")] == [TRACEPARENT, None]


async def test_every_kind_of_entry_and_delivery_is_counted() -> None:
    collector = Collector()
    world = World(telemetry=collector.telemetry)

    for one in (message(0), message(0), message(2), message(3), message(1)):
        await receive_message(world.east, delivery_of(one))
    for one in (message(0, session="b", kind="account.burn"), message(1, session="b")):
        await receive_message(world.east, delivery_of(one))
    await receive_message(world.east, delivery_of(message(0, session="c", kind="account.hint")))
    await world.clock.sleep(LAG_SECONDS + 2)
    await world.east.recovery.sweep()

    assert collector.values() == {
        "effects": 4,
        "folds": 1,
        "duplicates": 1,
        "parked": 3,
        "faults": 2,
        "halts": 1,
        "delivery.duration": 8,
        "pending.sessions": 0,
        "pending.age": 0,
        "blocked.queues": 0,
        "gap.sessions": 1,
        "gap.age": pytest.approx(LAG_SECONDS + 2, abs=1),
    }


def test_traces_travel_and_are_kept_but_identify_nothing() -> None:
    sent = traced(0)
    plain = replace(sent, traceparent=None)

    assert wire.to_properties(sent)["cloudEvents_traceparent"] == TRACEPARENT
    assert wire.from_properties(wire.to_properties(sent), sent.body) == sent
    assert decode_message(encode_message(sent)) == sent
    assert sent.digest == plain.digest
    batches = [[DestinationBatch("out", (one,))] for one in (sent, plain)]
    assert digest_batches(batches[0]) == digest_batches(batches[1])
    assert encode_message(plain).keys() == encode_message(sent).keys() - {"traceparent"}


@pytest.mark.parametrize(
    "forged",
    [
        "",
        "00-0",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"{TRACEPARENT}\nlevel=error",
        f"{TRACEPARENT}-more",
        7,
    ],
)
def test_what_is_no_traceparent_is_left_out_and_refuses_no_message(forged: object) -> None:
    properties = wire.to_properties(message(0)) | {"cloudEvents_traceparent": forged}

    assert wire.from_properties(properties, message(0).body) == message(0)
    assert read_traceparent(forged) is None


def test_the_same_part_of_all_messages_is_traced_whoever_asks() -> None:
    names = [str(n) for n in range(400)]

    chosen = [name for name in names if sample_trace(0.25, name)]

    assert chosen == [name for name in names if sample_trace(0.25, name)]
    assert 60 < len(chosen) < 140
    assert [sample_trace(0, name) for name in names] == [None] * 400
    assert all(read_traceparent(sample_trace(1, name)) for name in names)


async def test_so_many_of_the_traces_that_begin_here_are_sent_and_whole_in_both_regions() -> None:
    collector = Collector(ratio=0.25)
    world = World(telemetry=collector.telemetry)

    for n in range(200):
        await accept(world.east, post(key=f"order-{n}", session=f"s-{n}"))
    for one in world.bus.messages("east", "in"):
        await receive_message(world.east, delivery_of(one))
        await receive_message(world.west, delivery_of(one))

    by_name = {
        name: {ids(one)[0] for one in collector.spans(name)}
        for name in ("ingest", "receive", "effect")
    }
    assert 20 < len(by_name["ingest"]) < 80
    assert {frozenset(traces) for traces in by_name.values()} == {frozenset(by_name["ingest"])}
    assert len(collector.spans("receive")) == 2 * len(by_name["ingest"])
    # Whatever is sampled, everything is counted.
    assert collector.values()["effects"] == 200


async def test_a_trace_that_its_sender_marked_is_sent_and_one_that_an_sdk_begins_is_not() -> None:
    collector = Collector(ratio=0.0)
    world = World(telemetry=collector.telemetry)

    await accept(world.east, post(headers={"traceparent": TRACEPARENT}))
    await accept(world.east, post(key="order-2"))
    assert {ids(one)[0] for one in collector.spans()} == {TRACE}

    whole = Collector(ratio=1.0)
    sdk = whole.provider.get_tracer("azure.core")
    # A look at the leases, the feed or health.
    with sdk.start_as_current_span("GET /dbs/lockstep/colls/leases/docs"):
        pass
    with whole.telemetry["east"].span("receive", None), sdk.start_as_current_span("POST /docs"):
        pass
    assert [one.name for one in whole.spans()] == ["POST /docs", "receive"]


@pytest.mark.parametrize(("ratio", "is_sent"), [(0.0, False), (1.0, True)])
async def test_the_trace_of_a_saga_is_one_that_the_app_begins(ratio: float, is_sent: bool) -> None:
    collector = Collector(ratio=ratio)
    stage = await stocked(Stage(handlers), ["p"], 5)
    stage.telemetry = collector.telemetry

    await stage.start("O-1", order(("p", 1)), "west")
    await stage.run("O-1", order(("p", 1)))

    assert bool(collector.spans("effect")) is is_sent


async def test_a_saga_is_one_trace_in_both_regions_whoever_started_it() -> None:
    collector = Collector()
    stage = await stocked(Stage(handlers), ["p"], 5)
    # Nobody carries the trace along: it follows from the saga's key.
    expected = traceparent_of("O-1").split("-")[1]
    stage.telemetry = collector.telemetry

    await stage.start("O-1", order(("p", 1)), "west")
    await stage.run("O-1", order(("p", 1)))

    effects = collector.spans("effect")
    sessions = ("saga:O-1", "order:O-1", "stock:p", "account:ada")
    assert {said(one)["session"] for one in effects} == {*map(digest_name, sessions)}
    assert {ids(one)[0] for one in effects} == {expected}
    assert {said(one)["region"] for one in effects} == {"east", "west"}


def test_without_an_endpoint_nothing_is_loaded() -> None:
    settings = Settings.read(ENVIRONMENT)
    program = "import sys\nimport shared.wiring\nprint('opentelemetry' in sys.modules)"

    assert listen(settings) is None
    assert connect(settings, world_handlers).worker.telemetry is None
    assert run_python(program) == "False\n"


async def test_a_producer_begins_the_same_traces_however_often_it_sends() -> None:
    """As Spark does when a task is tried again, in another process."""
    world = World()

    for _ in range(2):
        await Producer(world.journal, world.delivery(), trace_ratio=1.0).send([message(0)])
    publisher = Producer(world.journal, world.delivery(), trace_ratio=1.0)
    await publisher.publish("acc-8", [Draft("m-1", "account.add", b"{}")], ProducerOptions("till"))

    first, again, published = world.bus.messages("east", "in")
    assert first == again == world.bus.messages("west", "in")[0]
    assert read_traceparent(first.traceparent) == sample_trace(1.0, *message(0).identity_parts)
    assert read_traceparent(published.traceparent)

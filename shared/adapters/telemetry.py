"""Telemetry over OpenTelemetry: spans and measures, to OTLP over HTTP and to Application Insights.

The Azure SDKs tell of their own requests by their own instrumentation, which is switched on here.
Its spans lie below those of the engine, because the current span travels with the task.
"""

import atexit
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

from opentelemetry import trace as tracing
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider, _Gauge
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, StatusCode, TracerProvider, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from shared.domain.journal import Entry, Status
from shared.domain.measures import MEASURES, SENT, UNSENT, Measure, MeasureKind, measure_entry
from shared.domain.message import Message
from shared.domain.trace import Trace
from shared.domain.wire import TRACE_HEADER
from shared.ports import Span

SCOPE = "lockstep"
NANOSECONDS = 1_000_000_000
CLOSE_SECONDS_MAX = 3.0
PROPAGATOR = TraceContextTextMapPropagator()
KINDS = {"ingest": SpanKind.SERVER, "start saga": SpanKind.SERVER, "receive": SpanKind.CONSUMER}
DIGESTED = frozenset({"session", "message", "saga"})
NOT_YET = {Status.WORKING: "claim", Status.PARKED: "park"}
# The id that the next span gets: that of an effect follows from its message.
CHOSEN: ContextVar[str | None] = ContextVar("chosen_span_id", default=None)

type Instrument = Counter | Histogram | _Gauge


class EffectIds(RandomIdGenerator):
    """Random ids, but for the span of an effect: everything that follows from it names its id."""

    def generate_span_id(self) -> int:
        """The id that was chosen for this span, if one was."""
        chosen = CHOSEN.get()
        return int(chosen, 16) if chosen is not None else super().generate_span_id()


class OwnTraces(TraceIdRatioBased):
    """So many of the traces that the app begins, the same ones in each process, by their ids.

    None that a request of an SDK begins: those of leases, feeds, timers and health belong to no
    message, and come day and night.
    """

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """The decision for a span that has no parent in this process, or one not decided upon."""
        if f"{SCOPE}.region" not in (attributes or {}):
            return SamplingResult(Decision.DROP)
        return super().should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )


def sample(ratio: float) -> Sampler:
    """The sampler of the app: whoever marked a trace as sampled is followed, and else the ratio.

    The trace of a saga is marked by nobody, so that it counts as one that the app begins.
    """
    own = OwnTraces(ratio)
    return ParentBased(own, remote_parent_not_sampled=own)


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """See ports.Span."""

    span: tracing.Span

    @property
    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier, tracing.set_span_in_context(self.span))
        return carrier.get(TRACE_HEADER)

    def describe(self, **attributes: str | float) -> None:
        self.span.set_attributes(name_attributes(attributes))


class OpenTelemetry:
    """See ports.Telemetry."""

    def __init__(self, region: str, spans: TracerProvider, meters: MeterProvider) -> None:
        self.region = region
        self.tracer = spans.get_tracer(SCOPE)
        meter = meters.get_meter(SCOPE)
        self.instruments = {measure: make_instrument(meter, measure) for measure in MEASURES}

    @contextmanager
    def span(self, name: str, traceparent: str | None, **attributes: str | float) -> Iterator[Span]:
        """See Telemetry.span. An exception that passes is named in the span, without its text."""
        context, links = place_after(traceparent)
        with self.tracer.start_as_current_span(
            name,
            context,
            KINDS.get(name, SpanKind.INTERNAL),
            name_attributes(attributes | {"region": self.region}),
            links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield OpenSpan(span)
            except BaseException as error:
                # The text of an exception may hold what a stranger wrote.
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    def commit(self, entry: Entry, seconds: float) -> None:
        for measure, amount in measure_entry(entry).items():
            self.add(measure, amount)
        for identity in entry.identities:
            if identity.trace is not None:
                said: dict[str, str | float] = {
                    "session": entry.session,
                    "message": identity.id,
                    "position": entry.position,
                    "status": entry.status.value,
                }
                # Only what ends a message is its effect.
                name = NOT_YET.get(entry.status, "effect")
                chosen = identity.trace if name == "effect" else None
                self.tell(name, identity.trace.traceparent, seconds, said, chosen=chosen)

    def send(
        self, region: str, queue: str, messages: Sequence[Message], seconds: float, failure: str
    ) -> None:
        self.add(UNSENT if failure else SENT, len(messages), queue=queue, to=region)
        for message in messages:
            if message.traceparent is not None:
                said = {"session": message.session, "message": message.id, "to": region}
                name, kind = f"send {queue}", SpanKind.PRODUCER
                self.tell(name, message.traceparent, seconds, said, kind=kind, failure=failure)

    def tell(
        self,
        name: str,
        traceparent: str,
        seconds: float,
        attributes: Mapping[str, str | float],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        chosen: Trace | None = None,
        failure: str = "",
    ) -> None:
        """A span of work that has ended just now."""
        ended = time.time_ns()
        context, links = place_after(traceparent)
        token = CHOSEN.set(chosen.effect if chosen else None)
        try:
            span = self.tracer.start_span(
                name,
                context,
                kind,
                name_attributes({**attributes, "region": self.region}),
                links,
                start_time=ended - int(seconds * NANOSECONDS),
            )
        finally:
            CHOSEN.reset(token)
        if failure:
            span.set_status(StatusCode.ERROR, failure)
        span.end(ended)

    def add(self, measure: Measure, amount: float = 1, **attributes: str) -> None:
        said = {"region": self.region, **attributes}
        match self.instruments[measure]:
            case Counter() as counter:
                counter.add(amount, said)
            case Histogram() as histogram:
                histogram.record(amount, said)
            case gauge:
                gauge.set(amount, said)


def place_after(traceparent: str | None) -> tuple[Context | None, list[Link]]:
    """Return the place that a span comes after, and a link to the current one.

    Not below the current one, which may be of another trace, or be lost with its process before it
    is sent, while other processes go on in the trace.
    """
    if traceparent is None:
        return None, []
    current = tracing.get_current_span().get_span_context()
    # An empty context to begin with, or what is no traceparent would be the current span.
    context = PROPAGATOR.extract({TRACE_HEADER: traceparent}, Context())
    return context, [Link(current)] if current.is_valid else []


def name_attributes(attributes: Mapping[str, str | float]) -> dict[str, str | float]:
    """Attributes under names that no other library uses; of what senders name, a digest.

    Spans are kept where nobody can erase, and names of senders may be those of people.
    """
    return {
        f"{SCOPE}.{name}": digest_name(str(value)) if name in DIGESTED else value
        for name, value in attributes.items()
    }


def digest_name(name: str) -> str:
    """Return what spans call a session, message or saga: 16 hexadecimal digits of its SHA-256."""
    return sha256(name.encode(errors="replace")).hexdigest()[:16]


def make_instrument(meter: Meter, measure: Measure) -> Instrument:
    match measure.kind:
        case MeasureKind.COUNTER:
            return meter.create_counter(measure.name, measure.unit, measure.meaning)
        case MeasureKind.HISTOGRAM:
            return meter.create_histogram(measure.name, measure.unit, measure.meaning)
        case MeasureKind.GAUGE:
            return meter.create_gauge(measure.name, measure.unit, measure.meaning)


def close_at_exit(*closes: Callable[[], None]) -> None:
    """Send what is left when the process ends, but not for long: a collector may be silent.

    The SDK would wait for half a minute, and the host ends a worker sooner.
    """
    is_over = threading.Event()

    def wait_and_close() -> None:
        is_over.wait()
        for close in closes:
            close()

    # Begun now, because no thread can be begun when the interpreter ends.
    closing = threading.Thread(target=wait_and_close, name="telemetry", daemon=True)
    closing.start()

    @atexit.register
    def end() -> None:
        is_over.set()
        closing.join(CLOSE_SECONDS_MAX)


@cache
def connect_telemetry(
    region: str, otlp_endpoint: str, insights: str, span_ratio: float
) -> OpenTelemetry:
    """Telemetry to the endpoints that are given, one or both; it is for the whole process.

    It is sent within some seconds, and at the end of the process. What else OpenTelemetry can be
    told, such as headers, it reads from its own environment variables; but OTEL_TRACES_SAMPLER is
    for the host, which knows other samplers than this SDK.
    """
    from azure.core.settings import settings as azure_settings
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    instance = f"{socket.gethostname()}-{os.getpid()}"
    resource = Resource.create({"service.instance.id": instance, "cloud.region": region})
    if "OTEL_SERVICE_NAME" not in os.environ:
        resource = resource.merge(Resource({"service.name": SCOPE}))
    spans = SdkTracerProvider(
        sample(span_ratio), resource, id_generator=EffectIds(), shutdown_on_exit=False
    )
    readers: list[MetricReader] = []
    if otlp_endpoint:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        base = otlp_endpoint.rstrip("/")
        spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics")))
    if insights:
        from azure.monitor.opentelemetry.exporter import (
            AzureMonitorMetricExporter,
            AzureMonitorTraceExporter,
        )

        # With APPLICATIONINSIGHTS_AUTHENTICATION_STRING they use an identity.
        to_insights = AzureMonitorTraceExporter(connection_string=insights)
        spans.add_span_processor(BatchSpanProcessor(to_insights))
        to_metrics = AzureMonitorMetricExporter(connection_string=insights)
        readers.append(PeriodicExportingMetricReader(to_metrics))
    meters = SdkMeterProvider(readers, resource, shutdown_on_exit=False)
    close_at_exit(spans.shutdown, meters.shutdown)
    # The SDKs' instrumentation knows the global provider only.
    tracing.set_tracer_provider(spans)
    metrics.set_meter_provider(meters)
    azure_settings.tracing_implementation = "opentelemetry"
    return OpenTelemetry(region, spans, meters)

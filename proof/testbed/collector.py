"""A collector of telemetry for one run: OTLP over HTTP on loopback, kept in memory."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from werkzeug import Request, Response

from proof.testbed.serving import serving

NANOSECONDS = 1e9


@dataclass(frozen=True, slots=True)
class CollectedSpan:
    """A span as it was sent; times are in seconds since 1970, ids in hexadecimal."""

    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    scope: str
    begin: float
    end: float
    is_error: bool
    attributes: dict[str, str | int | float]

    @property
    def region(self) -> str:
        return str(self.attributes.get("lockstep.region", ""))


@dataclass(slots=True)
class Collector:
    """The telemetry that was sent so far. `url` is the endpoint for OTEL_EXPORTER_OTLP_ENDPOINT."""

    url: str = ""
    spans: list[CollectedSpan] = field(default_factory=list)
    # By name: each data point's attributes with its value, or how often something was timed.
    points: dict[str, list[tuple[dict[str, Any], float]]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def trace(self, trace: str) -> list[CollectedSpan]:
        """Return the spans of one trace so far, by their beginning."""
        with self.changed:
            return sorted((s for s in self.spans if s.trace == trace), key=lambda one: one.begin)

    def wait(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is there, asked after each arrival; false when time is up."""
        with self.changed:
            return self.changed.wait_for(is_there, seconds)

    def take(self, path: str, body: bytes) -> bytes:
        """Keep what an exporter sends; the answer to it. Raises ValueError for another path."""
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

        with self.changed:
            if path == "/v1/traces":
                self.spans += read_spans(traces.ExportTraceServiceRequest.FromString(body))
                answer: bytes = traces.ExportTraceServiceResponse().SerializeToString()
            elif path == "/v1/metrics":
                request = metrics.ExportMetricsServiceRequest.FromString(body)
                for name, found in read_points(request):
                    self.points.setdefault(name, []).append(found)
                answer = metrics.ExportMetricsServiceResponse().SerializeToString()
            else:
                raise ValueError(f"nothing is taken at {path}")
            self.changed.notify_all()
        return answer


def read_spans(request: Any) -> Iterator[CollectedSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield CollectedSpan(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    links=tuple(link.trace_id.hex() for link in span.links),
                    scope=scope.scope.name,
                    begin=span.start_time_unix_nano / NANOSECONDS,
                    end=span.end_time_unix_nano / NANOSECONDS,
                    is_error=span.status.code == span.status.STATUS_CODE_ERROR,
                    attributes=read_attributes(span.attributes),
                )


def read_points(request: Any) -> Iterator[tuple[str, tuple[dict[str, Any], float]]]:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points:
                    value = point.count if kind == "histogram" else point.as_double or point.as_int
                    yield metric.name, (read_attributes(point.attributes), float(value))


def read_attributes(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector that listens while the block lasts."""
    collector = Collector()

    def receive(request: Request) -> Response:
        body = request.get_data()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        try:
            answer = collector.take(request.path, body)
        except ValueError as error:
            return Response(str(error), 404)
        return Response(answer, mimetype="application/x-protobuf")

    with serving(receive) as collector.url:
        yield collector

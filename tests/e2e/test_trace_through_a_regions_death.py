"""A collector gets one trace of a message that crossed a regions death, and all measures."""

import pytest

from proof.demo.trace.__main__ import SETTINGS, cross, draw
from proof.testbed.cloud import running_cloud
from proof.testbed.collector import running_collector

pytestmark = [pytest.mark.e2e, pytest.mark.proof]


def test_one_trace_holds_one_effect_of_each_message_and_both_regions_are_measured() -> None:
    with running_collector() as collector:
        settings = {**SETTINGS, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        with running_cloud(settings=settings) as cloud:
            run = cross(cloud, collector)

    assert run.complaints() == []
    outcomes = {(s.region, s.attributes["lockstep.outcome"]) for s in run.named("receive")}
    assert {("west", "duplicate"), ("west", "processed"), ("east", "duplicate")} <= outcomes
    # Requests of the SDKs lie in the same trace, below the engine's spans.
    assert len(run.spans) > len(run.own)
    assert "effect alice/score" in draw(run)
    for name in ("effects", "store.request_units", "delivery.latency", "sent"):
        points = collector.points[f"lockstep.{name}"]
        assert {said["region"] for said, value in points if value > 0} == {"east", "west"}, name
    assert not [s for s in collector.spans if '"position"' in str(s.attributes)]

"""Each run of a feed is one span with its counts, where the settings say where spans go."""

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from shared.ports import Telemetry
from shared.settings import Settings
from spark.feeding import dataframe
from spark.feeding.config import FeedConfig
from spark.feeding.dataframe import FeedResult, tell_of_run
from spark.feeding.incremental import SendResult
from spark.feeding.rejects import RowCounts
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.send.rows import SendCounts
from tests.unit.shared.test_telemetry import Collector, said

CONSOLE = JobConsole("feed", is_quiet=True)
OPTIONS = FeedConfig(
    "bank",
    source="booked",
    settings={"LOCKSTEP_REGIONS": "east", "ServiceBus_east": "east", "Cosmos": "none"},
)
RESULT = FeedResult(
    RowCounts(9, 7, 3, {"repeated key": 2}),
    SendResult({"new": 4, "older than what was fed": 1}, 2, SendCounts(6, 1, 3, 0.5)),
)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    collector = Collector()

    def listen(settings: Settings) -> Telemetry:
        assert settings.span_ratio == 1.0, "no run is left out by the ratio of the app"
        return collector.telemetry[settings.region]

    monkeypatch.setattr(dataframe, "listen", listen)
    return collector


def test_a_run_is_one_span_with_its_counts_and_no_trace_of_a_message(collector: Collector) -> None:
    with tell_of_run(OPTIONS, CONSOLE) as tell:
        tell(RESULT)

    (span,) = collector.spans()
    assert (span.name, span.parent, span.status.status_code) == ("feed", None, StatusCode.UNSET)
    assert said(span) == {
        "region": "east",
        "group": "bank",
        "source": "booked",
        "rows": 9,
        "events": 7,
        "rejected": 2,
        "resumed": 2,
        "new": 4,
        "older_than_what_was_fed": 1,
        "sent": 6,
        "pending": 1,
        "repeated": 3,
        "busy_seconds": 0.5,
    }


def test_when_a_run_is_refused_its_span_names_the_error_and_holds_none_of_its_text(
    collector: Collector,
) -> None:
    with pytest.raises(JobRefused), tell_of_run(OPTIONS, CONSOLE):
        raise JobRefused("the rows mean something else")

    (span,) = collector.spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "JobRefused")
    assert "something else" not in span.to_json()


def test_a_dry_run_is_no_span_and_asks_for_no_settings(collector: Collector) -> None:
    with tell_of_run(FeedConfig("bank", dry_run=True), CONSOLE) as tell:
        tell(RESULT)

    assert collector.spans() == []


def test_when_the_packages_of_telemetry_are_missing_the_run_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def listen(_settings: Settings) -> Any:
        raise ImportError("No module named 'opentelemetry'")

    monkeypatch.setattr(dataframe, "listen", listen)
    with tell_of_run(OPTIONS, JobConsole("feed")) as tell:
        tell(RESULT)

    assert "no span of this run is sent: No module named" in capsys.readouterr().err

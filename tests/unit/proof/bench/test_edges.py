"""The command that measures the edges: what it takes, and what it counts."""

import pytest

from proof.bench.edges.__main__ import MEASUREMENTS, count_requests, parse_arguments


def test_everything_is_measured_unless_something_is_named() -> None:
    assert parse_arguments([]).what == list(MEASUREMENTS)
    assert parse_arguments(["far", "silent"]).what == ["far", "silent"]


def test_an_unknown_measurement_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse_arguments(["near"])

    assert refused.value.code == 2
    assert "must be one of stays, silent, far, parked" in capsys.readouterr().err


def test_requests_are_counted_however_they_ended_and_without_the_feed() -> None:
    rows = {"200": {"count": 2}, "403": {"count": 3}}

    assert count_requests({"cosmos.journal": {"batch": rows, "read": rows, "feed": rows}}) == 10

"""Rates, ratios and profiles, from numbers to figures."""

import os

import pytest

from local.testing.children import read_cpu_seconds
from local.testing.patience import Patience
from proof.bench.systems import ROOT
from proof.bench.throughput.__main__ import compute_ratio, format_table
from proof.bench.throughput.consuming import Rate, Shape
from proof.bench.throughput.profile import build_profile
from proof.bench.throughput.sparse import summarize_lateness


def rate(per_second: float) -> Rate:
    seconds = 100 / per_second
    return Rate(100, seconds, consumer_seconds=seconds / 2, cloud_seconds=seconds / 4)


def test_a_rate_is_what_came_between_two_looks() -> None:
    begun, ended = Rate(10, 5.0, 1.0, 2.0), Rate(110, 7.0, 1.5, 2.25)

    between = ended.since(begun)

    assert between.per_second == 50.0
    assert between.consumer_each == 0.005
    assert between.cloud_each == 0.0025


def test_ratios_are_taken_round_by_round_so_that_a_slow_round_slows_both() -> None:
    ours = [rate(100), rate(10), rate(120)]
    theirs = [rate(200), rate(20), rate(200)]

    assert compute_ratio(ours, theirs) == pytest.approx(0.5)
    assert "0.50x" in list(format_table(Shape(50, 40), {"theirs": theirs, "ours": ours}, "ours"))[2]


def test_the_nth_settlement_is_held_against_the_nth_arrival() -> None:
    arrived = [float(n) for n in range(100)]
    settled = [n + 0.5 for n in arrived[:99]] + [199.0]

    late = summarize_lateness(arrived, settled)

    assert late.median == 0.5
    assert 90 < late.nearly_all <= 100
    assert summarize_lateness([2.0, 3.0], [1.0, 3.5]).median == pytest.approx(0.25)


def test_a_sample_belongs_to_the_innermost_owner_and_imports_to_nobody() -> None:
    engine = f"{ROOT}/shared/engine/consume/consume.py:Consumer.consume"
    sdk = "/venv/lib/python3.13/site-packages/azure/cosmos/aio/_container.py:read"
    codec = "/usr/lib/python3.13/json/decoder.py:decode"
    worker = "/venv/lib/python3.13/site-packages/azure/functions/meta.py:decode"
    importing = "<frozen importlib._bootstrap>:_load"

    profile = build_profile(
        [
            ((codec, sdk, engine), 6),
            ((engine,), 2),
            ((worker,), 1),
            ((codec,), 1),
            ((importing,), 9),
        ]
    )

    assert profile.samples == 10
    assert profile.owners == {
        "Cosmos SDK": 0.6,
        "engine (shared)": 0.2,
        "Functions worker library": 0.1,
        "event loop": 0.1,
    }
    assert profile.itself["json/decoder.py:decode"] == 0.7
    assert profile.ours == {"consume/consume.py:Consumer.consume": 0.8}


def test_processor_time_of_a_process_grows_while_it_works() -> None:
    before, patience = read_cpu_seconds(os.getpid()), Patience(20)

    while read_cpu_seconds(os.getpid()) <= before:
        assert not patience.is_over()

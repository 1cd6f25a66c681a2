"""`python -m fuzz`: a sample of its cases, and that it notices what it looks for."""

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fuzz.__main__ import SERVICES
from fuzz.campaign import Found, Fuzzed, run_campaign, shrink
from fuzz.cosmos import Request, judge_answer
from fuzz.servicebus import judge_ending
from local.testing import raw_amqp
from local.testing.cloud import CloudProcess
from local.testing.patience import run_patiently
from local.testing.raw_amqp import described, framed

pytestmark = pytest.mark.wire
EMULATOR = Path(__file__).parents[2]
OUTCOME = framed(raw_amqp.SASL_OUTCOME, 0, kind=1)
CLOSE = framed(raw_amqp.CLOSE, described(0x1D, "amqp:decode-error", "why"))


@pytest.mark.parametrize("service", SERVICES)
def test_a_sample_of_cases_finds_nothing(service: str) -> None:
    words = ("--service", service, "--seed", "1", "--cases", "200", "--seconds", "600")
    ended = run_patiently([sys.executable, "-m", "fuzz", *words], cwd=EMULATOR, seconds=300)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith(f"{service}: seed 1, 200 cases in ")


@pytest.mark.parametrize("service", SERVICES)
def test_the_same_seed_makes_the_same_cases_and_another_seed_others(service: str) -> None:
    def describe(seed: int) -> list[str]:
        cases = islice(SERVICES[service].generate(seed), 50)
        return [case.describe() for _, case in cases]

    assert describe(1) == describe(1) != describe(2)


@dataclass(frozen=True)
class Number:
    value: float

    def describe(self) -> str:
        return str(self.value)


class Fragile:
    """A service that cannot stand a number above 0.9."""

    def __init__(self, cloud: CloudProcess) -> None:
        self.cloud = cloud

    def send(self, case: Number) -> None:
        if case.value > 0.9:
            raise Found("too much")

    def check(self) -> None: ...

    def finish(self) -> None: ...


def test_what_is_found_is_shown_again_by_its_case_alone() -> None:
    config: dict[str, Any] = {"UserConfig": {}, "Cosmos": {"Database": "none", "Containers": []}}
    fuzzed = Fuzzed(config, lambda rng: Number(rng.random()), Fragile)
    rng = Random(7)
    number = next(n for n in range(1, 1000) if rng.random() > 0.9)

    outcome = run_campaign(fuzzed, fuzzed.generate(7), 600)
    again = shrink(fuzzed, outcome)

    assert (outcome.found.strip(), outcome.cases) == ("too much", number - 1)
    assert again is not None
    assert [one for one, _ in again.recent] == [number]


@pytest.mark.parametrize("received", [b"", OUTCOME, OUTCOME + raw_amqp.AMQP, CLOSE[:-1]])
def test_a_connection_that_ends_without_a_condition_is_found(received: bytes) -> None:
    with pytest.raises(Found):
        judge_ending(received)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"{}"), (503, b"busy"), (400, b"{}"), (404, b"not there"), (200, b"[")],
)
def test_an_answer_that_a_client_cannot_use_is_found(status: int, body: bytes) -> None:
    with pytest.raises(Found):
        judge_answer(Request("GET", ""), status, body)


def test_what_is_right_is_not_found() -> None:
    judge_ending(raw_amqp.SASL + OUTCOME + raw_amqp.AMQP + CLOSE)
    judge_answer(Request("GET", ""), 404, b'{"message": "not there"}')

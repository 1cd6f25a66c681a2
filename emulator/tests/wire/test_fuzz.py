"""`python -m fuzz`: a sample of its cases, and that it notices what it looks for."""

import sys
from pathlib import Path
from random import Random

import pytest

from fuzz.__main__ import SERVICES
from fuzz.campaign import Service, make_case, run_campaign
from fuzz.cosmos import Request, judge_answer
from fuzz.servicebus import judge_ending
from local.testing import raw_amqp
from local.testing.cloud import CloudProcess
from local.testing.patience import run_patiently
from local.testing.raw_amqp import UnexpectedAnswer, described, framed, require

pytestmark = pytest.mark.wire
EMULATOR = Path(__file__).parents[2]
OUTCOME = framed(raw_amqp.SASL_OUTCOME, 0, kind=1)
CLOSE = framed(raw_amqp.CLOSE, described(0x1D, "amqp:decode-error", "why"))
INTERNAL = framed(raw_amqp.CLOSE, described(0x1D, "amqp:internal-error", "why"))


@pytest.mark.parametrize("service", SERVICES)
def test_a_sample_of_cases_finds_nothing(service: str) -> None:
    words = ("--service", service, "--seed", "1", "--last", "80", "--seconds", "600")
    ended = run_patiently([sys.executable, "-m", "fuzz", *words], cwd=EMULATOR, seconds=300)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith(f"{service}: seed 1, 80 cases in ")


@pytest.mark.parametrize("service", SERVICES)
def test_a_case_follows_from_its_seed_and_number_alone(service: str) -> None:
    def show(seed: int, number: int) -> str:
        return str(make_case(SERVICES[service], seed, number))

    assert show(1, 7) == show(1, 7)
    assert len({show(1, 7), show(1, 8), show(2, 7)}) == 3


class Fragile(Service[float]):
    """A service that cannot stand a number above 0.9."""

    config = {"UserConfig": {}, "Cosmos": {"Database": "none", "Containers": []}}  # noqa: RUF012
    make = staticmethod(Random.random)

    def __init__(self, cloud: CloudProcess) -> None:
        self.cloud = cloud

    def send(self, case: float) -> None:
        require(case <= 0.9, "too much")

    def check(self) -> None: ...


def test_what_is_found_is_shown_again_by_its_case_alone() -> None:
    number = next(one for one in range(1, 1000) if make_case(Fragile, 7, one) > 0.9)

    said, found = run_campaign(Fragile, 7, range(1, 1000), 600)
    _, again = run_campaign(Fragile, 7, range(number, number + 1), 600)

    assert said.startswith(f"{number - 1} cases in ")
    assert found == again
    assert found.startswith(
        f"case {number}, or one of the 50 before it: UnexpectedAnswer('too much')"
    )


@pytest.mark.parametrize("received", [b"", OUTCOME, OUTCOME + raw_amqp.AMQP, CLOSE[:-1], INTERNAL])
def test_a_connection_that_ends_without_a_condition_is_found(received: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        judge_ending(received)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"{}"), (503, b"busy"), (400, b"{}"), (404, b"not there"), (200, b"[")],
)
def test_an_answer_that_a_client_cannot_use_is_found(status: int, body: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        judge_answer(Request("GET", "", {}), status, body)


def test_what_is_right_is_not_found() -> None:
    judge_ending(raw_amqp.SASL + OUTCOME + raw_amqp.AMQP + CLOSE)
    judge_answer(Request("GET", "", {}), 404, b'{"message": "not there"}')

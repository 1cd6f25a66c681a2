"""`python -m bench` measures what it says it does."""

import re
import sys
from pathlib import Path

import pytest

from bench import operations
from local.testing.patience import run_patiently

EMULATOR = Path(__file__).parents[2]
pytestmark = [pytest.mark.wire, pytest.mark.proof]
KINDS = (
    operations.SEND,
    operations.RECEIVE,
    operations.CREATE,
    operations.READ,
    operations.BATCH,
)


def test_every_kind_of_operation_is_measured_and_sampled_and_nothing_is_left() -> None:
    printed = bench("--messages", "50", "--items", "20", "--data", "--profile")

    for kind in KINDS:
        (rate,) = re.findall(rf"^{re.escape(kind)} +(\d+) ", printed, re.MULTILINE)
        assert int(rate) > 0
    assert "ports still open: none" in printed
    assert re.search(r"^ +[\d.]+%  local/servicebus$", printed, re.MULTILINE)


def bench(*options: str) -> str:
    """What it prints."""
    command = [sys.executable, "-m", "bench", *options]
    ended = run_patiently(command, seconds=280, cwd=EMULATOR)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout

"""`python -m proof.chaos` as CI runs it: a host, a region, the sender and the cloud die in turn.

The seed is one whose fault plan has all four in its first half minute; see `--plan`.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from local.testing.patience import run_patiently

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

ROOT = Path(__file__).parents[2]
SEED, SECONDS, RATE = 24477, 40, 15
RUN_SECONDS_MAX = 400
PROMISES = [f"P{number}" for number in range(1, 10)]


def test_every_promise_holds_while_everything_is_killed_once(tmp_path: Path) -> None:
    data = tmp_path / "run"

    done = chaos("--data", str(data), "--seconds", str(SECONDS), "--rate", str(RATE))

    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^ok  (P\d) .*: checked (\d+) .*, violations 0$", done.stdout, re.MULTILINE)
    assert [name for name, _ in found] == PROMISES
    assert all(int(checked) for _, checked in found), done.stdout
    for outage in ("host killed", "region unavailable", "sender killed", "cloud killed"):
        assert f"1 {outage}" in re.sub(r"\s+", " ", done.stdout), done.stdout
    assert "every promise held" in done.stdout

    lose_an_effect(data / "received.jsonl")
    again = chaos("--data", str(data), "--judge")

    assert again.returncode == 1, again.stdout + again.stderr
    assert re.findall(r"^BROKEN  (P\d) ", again.stdout, re.MULTILINE) == ["P5"]


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proof.chaos", "--ease", "1"]
    command += ["--seed", str(SEED), *words]
    return run_patiently(command, seconds=RUN_SECONDS_MAX, cwd=ROOT)


def lose_an_effect(record: Path) -> None:
    """Strike the last effect that came out of the west from what the recorder wrote down."""
    lines = record.read_text().splitlines(keepends=True)
    west = [line for line in lines if '"region":"west","queue":"chaos-effects"' in line]
    found = re.search(r'"id":"\w+"', west[-1])
    assert found
    kept = [line for line in lines if line not in west or found[0] not in line]
    record.write_text("".join(kept))

"""Every line that `up` prints for a shell works there, as it is printed."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from cli.folders import ROOT, write_app
from local.testing.answers import request
from local.testing.patience import run_patiently, until, wait_for_end
from tests.programs import find_program

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SENDER = """
import os
from shared.publishing.message import SessionMessage
from shared.publishing.opening import open_blocking_producer
from shared.publishing.options import IdempotentProducerOptions
from shared.settings import Settings

with open_blocking_producer(Settings.read(os.environ), IdempotentProducerOptions("t")) as producer:
    producer.send([SessionMessage("m-1", "bank.add", '{"amount":7}')], session="bank-1")
"""


def read_lines(output: IO[str], last: str) -> list[str]:
    """What is printed up to a line that begins so, itself included."""
    lines = []
    for line in output:
        lines.append(line.rstrip("\n"))
        if line.startswith(last):
            return lines
    raise AssertionError(f"it ended before {last!r}: {lines}")


@contextmanager
def running_up(
    command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[list[str], IO[str]]]:
    """`lockstep up` until the end of the block: what it printed till it was up, and its output."""
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield read_lines(process.stdout, "Ctrl-C stops everything."), process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        assert wait_for_end(process, seconds=60) == 130


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[list[str], IO[str]]]:
    """`lockstep up --reload` with an app of its own folder."""
    find_program("curl")
    write_app(tmp_path / "bank")
    words = ["--app", str(tmp_path / "bank"), "--data", str(tmp_path / "up"), "--reload"]
    with running_up([sys.executable, "-m", "cli", "up", *words], ROOT) as running:
        yield running


def run_lines(lines: list[str], folder: Path) -> list[str]:
    """What each line printed, all of them run by one shell as they are."""
    script = "\n".join(["set -e", *(f"{line}\necho ---" for line in lines)])
    run = run_patiently(["/bin/bash", "-c", script], seconds=100, cwd=folder)
    assert run.returncode == 0, run.stderr
    return [part.strip() for part in run.stdout.split("---\n")[:-1]]


def test_every_line_for_a_shell_works_as_it_is_printed(
    up: tuple[list[str], IO[str]], tmp_path: Path
) -> None:
    printed, output = up
    lines = [line for line in printed if line.startswith("  ")]
    pages = [line.strip() for line in lines if "/api/operate" in line]
    exports = [line for line in lines if line.strip().startswith("export ")]
    send, look, faults, kill, cut, mend, start, counters, hosts = [
        line for line in lines if line.strip().startswith("curl ")
    ]
    assert len(pages) == 2
    assert len(lines) == len(pages) + len(exports) + 9
    for page in pages:
        answer = request(page, "GET", {}, None)
        assert answer.status == 200
        assert b"Nothing stands still." in answer.body

    accepted = json.loads(run_lines([send], ROOT)[0])
    assert accepted["session"] == "bank-1"
    (tmp_path / "send.py").write_text(SENDER)
    sender = f"PYTHONPATH={ROOT} {sys.executable} {tmp_path}/send.py"
    run_lines([*exports, sender], ROOT)

    def shown() -> dict[str, object]:
        return dict(json.loads(run_lines([look], ROOT)[0]))

    until(lambda: shown()["state"] == {"total": 12, "messages": 2}, what="both effects")
    assert json.loads(run_lines([faults], ROOT)[0])["standstills"] == []

    answers = [json.loads(answer or "null") for answer in run_lines([kill, cut, counters], ROOT)]
    assert answers[0]["state"] == "stopped"
    assert answers[2]["queues"]
    answers = [json.loads(answer or "null") for answer in run_lines([mend, start, hosts], ROOT)]
    assert {host["state"] for host in answers[2].values()} == {"running"}

    # Code that is changed takes its place in both regions.
    module = tmp_path / "bank/handlers/bank.py"
    module.write_text(module.read_text().replace("messages + 1", "messages + 100"))
    told = [*read_lines(output, "east runs"), *read_lines(output, "west runs")]
    assert told == ["bank.py changed", "east runs the new code", "west runs the new code"]
    run_lines([re.sub("Idempotency-Key: first", "Idempotency-Key: second", send)], ROOT)
    until(
        lambda: shown()["state"] == {"total": 17, "messages": 102},
        what="the effect of the new code",
    )

"""Every line that `up` prints for a shell works there, as it is printed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from cli.folders import write_app
from local.testing.answers import request
from local.testing.patience import run_patiently, until, wait_for_end
from proof.bench.first_app import find_environment
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


COMMAND = ["/bin/sh", "-c", "exec lockstep up --reload --app bank"]


def run_lines(lines: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """What each line printed, all of them run by one shell as they are."""
    script = "\n".join(["set -e", *(f"{line}\necho ---" for line in lines)])
    run = run_patiently(["/bin/bash", "-c", script], seconds=100, cwd=folder, env=environment)
    assert run.returncode == 0, run.stderr
    return [part.strip() for part in run.stdout.split("---\n")[:-1]]


def test_every_line_for_a_shell_works_as_it_is_printed(tmp_path: Path) -> None:
    find_program("curl")
    environment = find_environment(tmp_path)
    write_app(tmp_path / "bank")
    with running_up(COMMAND, tmp_path, environment) as (printed, output):
        pages = require_lines_work(printed, output, tmp_path, environment)
        require_reload(output, tmp_path / "bank/handlers/bank.py", pages)

    # Started again, it has the addresses and all that was kept.
    with running_up(COMMAND, tmp_path, environment) as (printed, _):
        assert [line for line in printed if "/api/operate" in line] == pages
        (shown,) = run_lines(["lockstep show bank-1"], tmp_path / "bank", environment)
        assert '{"total": 24, "messages": 103}' in shown


def require_lines_work(
    printed: Sequence[str], output: IO[str], folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """Run every line; returns those of the pages."""
    assert printed[:3] == [
        f"the app in {folder / 'bank'}",
        "  handlers/bank.py  bank.add",
        "starting Azure on this machine",
    ]
    lines = [line for line in printed[2:] if line.startswith("  ")]
    pages, rest = lines[:2], [line.strip() for line in lines[2:]]
    assert [page.split()[0] for page in pages] == ["east", "west"]
    for page in pages:
        answer = request(page.split()[1], "GET", {}, None)
        assert answer.status == 200
        assert b"Nothing stands still." in answer.body
    enter, send, show, faults, new, env, *curls = rest
    assert (enter, new, env) == ("cd bank", "lockstep new handler NAME", ". bank/.up/env")

    run_lines([enter, send, faults, new.replace("NAME", "loan")], folder, environment)
    told = [*read_lines(output, "east runs"), *read_lines(output, "west runs")]
    assert told[-2:] == ["east runs the new code", "west runs the new code"]
    post, look, listing, kill, cut, mend, start, counters, hosts = curls
    accepted = json.loads(run_lines([post], folder, environment)[0])
    assert accepted["session"] == "bank-1"
    (folder / "send.py").write_text(SENDER)
    run_lines([env, f"{sys.executable} send.py"], folder, environment)

    def is_done() -> bool:
        state = json.loads(run_lines([look], folder, environment)[0])["state"]
        return bool(state == {"total": 17, "messages": 3})

    until(is_done, what="all effects")
    (shown,) = run_lines([f"cd bank; {show}"], folder, environment)
    assert '{"total": 17, "messages": 3}' in shown
    assert json.loads(run_lines([listing], folder, environment)[0])["standstills"] == []
    killed, _, counted = run_lines([kill, cut, counters], folder, environment)
    assert json.loads(killed)["state"] == "stopped"
    assert json.loads(counted)["queues"]
    _, _, listed = run_lines([mend, start, hosts], folder, environment)
    assert {host["state"] for host in json.loads(listed).values()} == {"running"}
    return pages


def require_reload(output: IO[str], module: Path, pages: Sequence[str]) -> None:
    """Code that cannot be imported reaches no region; code that can takes its place in both."""
    sound, folder = module.read_text(), module.parents[2]
    module.write_text(f"{sound}def x(:\n")
    line = len(sound.splitlines()) + 1
    assert read_lines(output, "all regions go on") == [
        "bank.py changed",
        f"bank/handlers/bank.py:{line}: SyntaxError: invalid syntax",
        "all regions go on with the code that they have",
    ]
    for page in pages:
        assert request(page.split()[1], "GET", {}, None).status == 200
    module.write_text(sound.replace("messages + 1", "messages + 100"))
    told = [*read_lines(output, "east runs"), *read_lines(output, "west runs")]
    assert told == ["bank.py changed", "east runs the new code", "west runs the new code"]
    send = "lockstep send bank-1 bank.add '{\"amount\": 7}'"
    environment = find_environment(folder)
    run_lines([send], folder / "bank", environment)
    until(
        lambda: (
            '{"total": 24, "messages": 103}'
            in run_lines(["lockstep show bank-1"], folder / "bank", environment)[0]
        ),
        what="the effect of the new code",
    )

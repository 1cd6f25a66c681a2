"""A limit counts the time in which processes run or wait, not that in which they queue to run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.testing import patience
from local.testing.patience import (
    HARD_STOP,
    Patience,
    PatienceExhausted,
    eventually,
    read_queued_seconds,
    run_patiently,
    wait_until,
)

BUSY = "while True: pass"


class Clocks:
    """The wall's clock, and how long the processes have queued."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.queued = 70.0

    def pass_by(self, seconds: float, *, queued: float = 0.0) -> None:
        self.now += seconds
        self.queued += queued


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr("time.monotonic", lambda: made.now)
    monkeypatch.setattr(patience, "read_queued_seconds", lambda: made.queued)
    return made


def test_a_limit_counts_what_does_not_queue_for_a_processor(clocks: Clocks) -> None:
    idle, busy = Patience(10), Patience(100)
    clocks.pass_by(9.9)
    assert not idle.is_over()
    clocks.pass_by(0.2)
    assert idle.is_over()

    clocks.pass_by(900, queued=850)
    assert not busy.is_over()
    clocks.pass_by(50)
    assert busy.is_over()


def test_a_wait_that_only_queues_ends_all_the_same(clocks: Clocks) -> None:
    limit = Patience(10)
    clocks.pass_by(HARD_STOP * 10 - 1, queued=1e6)
    assert not limit.is_over()

    clocks.pass_by(2, queued=1e6)

    assert limit.is_over()


def test_a_process_that_ends_takes_no_time_away(clocks: Clocks) -> None:
    """What it had queued is not in the sum any more, which must not make a wait shorter."""
    limit = Patience(10)
    clocks.pass_by(9.5, queued=-60)

    assert not limit.is_over()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts it")
def test_the_queueing_of_a_child_is_seen() -> None:
    """Two that compute without end share one processor, so one of them always queues."""
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n{BUSY}"
    before = read_queued_seconds()
    running = [subprocess.Popen([sys.executable, "-c", one]) for _ in range(2)]
    try:
        wait_until(lambda: read_queued_seconds() > before + 0.5, seconds=60, what="queueing")
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_elsewhere_than_on_linux_nothing_is_known_to_queue(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(patience, "PROCESSES", tmp_path)

    assert read_queued_seconds() == 0.0


def test_a_program_that_ends_in_time_has_its_output_and_status() -> None:
    code = "import sys; print('out'); print('errors', file=sys.stderr); sys.exit(3)"

    ended = run_patiently([sys.executable, "-c", code], seconds=60)

    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "out\n", "errors\n")


def test_a_program_that_does_not_end_is_killed_and_what_it_printed_is_told() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"

    with pytest.raises(PatienceExhausted, match=r"ran 0\.5 s: \('[0-9]+\\n', ''\)"):
        run_patiently([sys.executable, "-c", code], seconds=0.5)


def test_what_an_asking_raises_counts_as_not_yet_until_the_time_is_over(clocks: Clocks) -> None:
    answers: Iterator[int | Exception] = iter([KeyError("parked"), ConnectionRefusedError(), 0, 3])

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert eventually(ask) == 3

    def refuse() -> int:
        clocks.pass_by(1)
        raise KeyError("parked")

    with pytest.raises(PatienceExhausted, match="it did not happen within 5 s: KeyError") as raised:
        eventually(refuse, seconds=5)
    assert isinstance(raised.value.__cause__, KeyError)

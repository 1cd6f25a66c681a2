"""Child processes end with their parent, however they and their own children behave."""

import os
import signal
import sys
from pathlib import Path

import pytest

from local.testing.children import Child
from local.testing.patience import until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
)
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
SLEEP = "; time.sleep(60)"


def is_alive(process_group: int) -> bool:
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_a_child_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    with Child(
        python(STUBBORN + SLEEP), log=tmp_path / "log", is_piped=True, grace_seconds=0.2
    ) as child:
        assert child.output.readline() == b"1\n"

    assert child.stop() == -signal.SIGKILL
    assert not child.is_running


def test_what_a_child_left_behind_ends_with_it(tmp_path: Path) -> None:
    code = PARENT + "; import os; print(os.getpid(), flush=True)"
    with Child(python(code, STUBBORN + SLEEP), log=tmp_path / "log", is_piped=True) as child:
        group = int(child.output.readline())
        assert is_alive(group)

    until(lambda: not is_alive(group), seconds=10, what="the end of the group")


def test_a_polite_child_is_given_the_time_to_end_by_itself(tmp_path: Path) -> None:
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print(1, flush=True)"
    with Child(python(code + "; signal.pause()"), log=tmp_path / "log", is_piped=True) as child:
        child.output.readline()

    assert child.stop() == 7


def test_an_error_in_the_block_still_stops_the_child(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Child(python("import time" + SLEEP), log=tmp_path / "log") as child,
    ):
        raise KeyboardInterrupt

    assert not child.is_running


def test_a_failure_shows_the_end_of_the_childs_log(tmp_path: Path) -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(40)]; sys.exit(3)"
    child = Child(python(code), log=tmp_path / "log")
    until(lambda: not child.is_running, seconds=10, what="its end")

    assert child.stop() == 3
    failure = str(child.failure("it broke"))
    assert failure.startswith("it broke; the end of")
    assert "line 39" in failure
    assert "line 20" not in failure

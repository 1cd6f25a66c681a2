"""A thousand sessions under abandons, lost locks and killed receivers: in order, and none lost.

Receivers are processes of their own, killed with SIGKILL and replaced; a share of completions lose
the session's lock first (a fault). What is checked is their log of what happened.
"""

import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.testing.patience import Patience, PatienceExhausted
from wire.service_bus import hurried_client
from wire.service_bus_process import BusProcess, serving_bus
from wire.service_bus_worker import THREADS

pytestmark = [pytest.mark.wire, pytest.mark.proof]
TESTS = Path(__file__).parents[1]
QUEUE = "crowd"
SESSIONS, MESSAGES = 1000, 20
WORKERS, KILLS = 2, 4
LOST_LOCKS = 0.005  # share of completions
SECONDS_MAX = 400.0  # far more than it takes: a tenth on two processors with nothing else to do

type Line = tuple[str, int]


def test_order_holds_in_every_session_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "handled"
    log.touch()
    with (
        serving_bus(action="lose-lock", operation="complete", rate=LOST_LOCKS) as bus,
        hurried_client(),
    ):
        client = ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0)
        with client:
            send(client)
            killed = drain_with_killed_workers(bus, log)
            left = bus.depth(QUEUE)

    handled = read_log(log)
    assert killed == KILLS
    assert set(left.values()) == {0}, left
    assert len(handled) == SESSIONS
    assert {name: wrong for name, lines in handled.items() if (wrong := faults_in(lines))} == {}
    happened = Counter(what for lines in handled.values() for what, _ in lines)
    assert happened["abandoned"] > 0
    assert happened["took"] - happened["abandoned"] > SESSIONS * MESSAGES, "no lock was lost"
    # A kill may come between an acknowledgement and its line in the log.
    assert SESSIONS * MESSAGES - happened["completed"] <= KILLS * THREADS


def send(client: ServiceBusClient) -> None:
    """One message after the other of all sessions, many sessions to a batch."""
    with client.get_queue_sender(QUEUE) as sender:
        for number in range(MESSAGES):
            sender.send_messages(
                [
                    ServiceBusMessage(str(number), session_id=f"N{session}")
                    for session in range(SESSIONS)
                ]
            )


def drain_with_killed_workers(bus: BusProcess, log: Path) -> int:
    """Let workers drain the queue, kill some on the way; returns how many were killed."""
    patience, killed = Patience(SECONDS_MAX), 0
    with workers(bus, log) as running:
        while any(worker.poll() is None for worker in running):
            if patience.is_over():
                raise PatienceExhausted("not drained in time")
            share = log.read_bytes().count(b"completed") / (SESSIONS * MESSAGES)
            if killed < KILLS and share > (killed + 1) / (KILLS + 1):
                at = killed % WORKERS
                running[at].kill()
                running[at].wait()
                running[at] = start_worker(bus, log, seed=WORKERS + killed)
                killed += 1
            time.sleep(0.1)
        assert [worker.returncode for worker in running] == [0] * WORKERS
    return killed


@contextmanager
def workers(bus: BusProcess, log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Workers that are gone at the end, however it comes."""
    running = [start_worker(bus, log, seed) for seed in range(WORKERS)]
    try:
        yield running
    finally:
        for worker in running:
            worker.kill()
            worker.wait()


def start_worker(bus: BusProcess, log: Path, seed: int) -> subprocess.Popen[bytes]:
    """One receiver."""
    module = "wire.service_bus_worker"
    arguments = [bus.connection_string, QUEUE, str(log), str(MESSAGES - 1), str(seed)]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=TESTS)


def read_log(log: Path) -> dict[str, list[Line]]:
    """What happened in each session, in order, and to which of its messages."""
    handled: defaultdict[str, list[Line]] = defaultdict(list)
    for line in log.read_text().splitlines():
        what, session, number = line.split()
        handled[session].append((what, int(number)))
    return handled


def faults_in(lines: list[Line]) -> list[str]:
    """What is wrong with the order in which a session's messages were handled."""
    taken = [number for what, number in lines if what == "took"]
    wrong = []
    if taken[0] != 0 or taken[-1] != MESSAGES - 1:
        wrong.append(f"from {taken[0]} to {taken[-1]}")
    wrong += [f"{after} came after {n}" for n, after in pairwise(taken) if after not in (n, n + 1)]
    for (what, number), (_, after) in pairwise(lines):
        if what == "abandoned" and after != number:
            wrong.append(f"{after} came first after {number} was abandoned")
        if what == "completed" and after == number:
            wrong.append(f"{number} came again after it was completed")
    return wrong

"""A thousand sessions under abandons, lost locks and killed receivers: in order, and none lost.

Receivers are processes of their own, killed with SIGKILL and replaced; a share of completions lose
the session's lock first (a fault).
"""

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from tests.wire.service_bus import hurried_client
from tests.wire.service_bus_process import BusProcess, serving_bus

pytestmark = pytest.mark.wire
ROOT = Path(__file__).parents[2]
QUEUE = "crowd"
SESSIONS, MESSAGES = 1000, 20
WORKERS, KILLS = 2, 4
LOST_LOCKS = 0.005  # share of completions
SECONDS_MAX = 90.0  # far more than it takes: less than half on two processors


def test_order_holds_in_every_session_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "handled"
    log.touch()
    with serving_bus(lost_locks=LOST_LOCKS) as bus, hurried_client():
        client = ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0)
        with client:
            send(client)
            killed = drain_with_killed_workers(bus, log)
            left = [len(peek(client, None)), len(peek(client, ServiceBusSubQueue.DEAD_LETTER))]

    handled = read_log(log)
    assert killed == KILLS
    assert left == [0, 0]
    assert len(handled) == SESSIONS
    assert {s: order for s, order in handled.items() if not is_in_order(order)} == {}
    assert sum(map(len, handled.values())) > SESSIONS * MESSAGES, "nothing went wrong on the way"


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
    deadline, killed = time.monotonic() + SECONDS_MAX, 0
    with workers(bus, log) as running:
        while any(worker.poll() is None for worker in running):
            assert time.monotonic() < deadline, "not drained in time"
            share = len(log.read_bytes().splitlines()) / (SESSIONS * MESSAGES)
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
    module = "tests.wire.service_bus_worker"
    arguments = [bus.connection_string, QUEUE, str(log), str(MESSAGES - 1), str(seed)]
    return subprocess.Popen([sys.executable, "-m", module, *arguments], cwd=ROOT)


def peek(client: ServiceBusClient, sub_queue: ServiceBusSubQueue | None) -> list[object]:
    """What is left, seen without a session's lock through the queue's dead letters or itself."""
    if sub_queue is None:
        with client.get_queue_receiver(QUEUE, session_id="N0", max_wait_time=5) as receiver:
            return list(receiver.peek_messages(1))
    with client.get_queue_receiver(QUEUE, sub_queue=sub_queue, max_wait_time=5) as receiver:
        return list(receiver.peek_messages(1))


def read_log(log: Path) -> dict[str, list[int]]:
    """The numbers handled in each session, in the order of their handling."""
    handled: defaultdict[str, list[int]] = defaultdict(list)
    for line in log.read_text().splitlines():
        session, number = line.split()
        handled[session].append(int(number))
    return handled


def is_in_order(numbers: list[int]) -> bool:
    """Whether each number was followed by itself again or by the next, from first to last."""
    steps = {after - before for before, after in pairwise(numbers)}
    return numbers[0] == 0 and numbers[-1] == MESSAGES - 1 and steps <= {0, 1}

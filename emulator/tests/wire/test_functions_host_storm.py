"""Sessions through two hosts under failing functions, lost locks and killed hosts.

Hosts are killed with SIGKILL in the middle of the work and replaced; a share of runs fails, and a
share of completions loses the session's lock first (a fault).
"""

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from local.counters import Counters
from local.faults import Action, Fault, Faults
from local.servicebus.config import NamespaceConfig, QueueConfig
from local.servicebus.server import Namespace
from local.testing.patience import Patience, PatienceExhausted, wait_for_end
from wire.functions_host_process import bus_client, start

pytestmark = pytest.mark.wire
APP = Path(__file__).parent / "storm_app"
QUEUE = QueueConfig("storm", requires_session=True, max_delivery_count=2000)
# More of them, and they take longer, before a release.
SESSIONS, MESSAGES = 150 if os.environ.get("TESTS_PROOF") == "1" else 50, 20
HOSTS, KILLS = 2, 2
FAILING = 0.02  # share of runs
LOST_LOCKS = 0.01  # share of completions
SECONDS_MAX = 240.0  # far more than it takes


def test_order_holds_in_every_session_and_nothing_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "handled"
    log.touch()
    with running_namespace() as namespace:
        send(namespace)
        killed = drain_with_killed_hosts(namespace, log)
        dead = namespace.depth(QUEUE.name)["dead_lettered"]

    handled = read_log(log)
    assert (killed, dead) == (KILLS, 0)
    assert len(handled) == SESSIONS
    assert {s: bodies for s, bodies in handled.items() if not is_in_order(s, bodies)} == {}
    assert sum(map(len, handled.values())) > SESSIONS * MESSAGES, "nothing went wrong on the way"


@contextmanager
def running_namespace() -> Iterator[Namespace]:
    """A namespace in which now and then a lock is lost."""
    faults = Faults()
    faults.arm(Fault("servicebus.east", Action.LOSE_LOCK, "complete", rate=LOST_LOCKS))
    config = NamespaceConfig("east", (QUEUE,))
    namespace = Namespace(config, port=0, faults=faults, counters=Counters())
    namespace.start()
    try:
        yield namespace
    finally:
        namespace.stop()


def body_of(session: str, number: int) -> str:
    """The body of a message."""
    return f"{session}/{number}"


def send(namespace: Namespace) -> None:
    """One message after the other of all sessions, many sessions to a batch."""
    sessions = [f"N{number}" for number in range(SESSIONS)]
    with (
        bus_client(namespace.connection_string) as client,
        client.get_queue_sender(QUEUE.name) as sender,
    ):
        for number in range(MESSAGES):
            sender.send_messages(
                [ServiceBusMessage(body_of(name, number), session_id=name) for name in sessions]
            )


def drain_with_killed_hosts(namespace: Namespace, log: Path) -> int:
    """Let hosts drain the queue, kill some on the way; returns how many were killed."""
    patience, killed = Patience(SECONDS_MAX), 0
    with hosts(namespace, log) as running:
        while not is_drained(namespace):
            if patience.is_over():
                raise PatienceExhausted("not drained in time")
            share = log.read_bytes().count(b"\n") / (SESSIONS * MESSAGES)
            if killed < KILLS and share > (killed + 1) / (KILLS + 2):
                at = killed % HOSTS
                running[at].kill()
                running[at].communicate()
                running[at] = start_host(namespace, log, HOSTS + killed)
                killed += 1
            time.sleep(0.02)
        assert [end(host) for host in running] == [0] * HOSTS
    return killed


@contextmanager
def hosts(namespace: Namespace, log: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Hosts that are gone at the end, however it comes."""
    running = [start_host(namespace, log, number) for number in range(HOSTS)]
    try:
        yield running
    finally:
        for host in running:
            host.kill()
            host.communicate()


def start_host(namespace: Namespace, log: Path, number: int) -> subprocess.Popen[str]:
    """Start one host; nobody waits for it, so that the others have work left to be killed in."""
    settings = {
        "ServiceBus": namespace.connection_string,
        "STORM_LOG": str(log),
        "STORM_FAILING": str(FAILING),
    }
    return start(APP, log.with_name(f"host-{number}.log"), settings)


def end(host: subprocess.Popen[str]) -> int:
    """Stop a host once it is there to be stopped in order; returns its exit status."""
    assert host.stdout is not None
    assert host.stdout.readline()
    host.terminate()
    return wait_for_end(host, seconds=60)


def is_drained(namespace: Namespace) -> bool:
    """Whether nothing waits and nothing is locked."""
    depth = namespace.depth(QUEUE.name)
    return depth["active"] == depth["locked"] == 0


def read_log(log: Path) -> dict[str, list[str]]:
    """The bodies handled in each session, in the order of their handling."""
    handled: defaultdict[str, list[str]] = defaultdict(list)
    for line in log.read_text().splitlines():
        session, body = line.split(" ", 1)
        handled[session].append(body)
    return handled


def is_in_order(session: str, bodies: list[str]) -> bool:
    """Whether each message was followed by itself again or by the next, from first to last."""
    expected = [body_of(session, number) for number in range(MESSAGES)]
    places = [expected.index(body) if body in expected else -1 for body in bodies]
    steps = {after - before for before, after in pairwise(places)}
    return places[0] == 0 and places[-1] == MESSAGES - 1 and steps <= {0, 1}

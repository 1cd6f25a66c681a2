"""Messages per second through a session queue of the local Service Bus, and who pays for them.

    python -m bench.local_service_bus [--messages 5000] [--memory 100000]

The namespace runs in a process of its own, so its processor time and memory are told apart from
those of the client (azure-servicebus). Each message of 1 KB is sent in a batch, received under a
session's lock and completed by itself. `--memory` sends that many more, and prints the memory of
the namespace as they pass.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

BODY = b"x" * 1024
QUEUE = "lockstep"
BATCH_MESSAGES = 100
SESSION_MESSAGES = 1000  # messages of one session: sent, then received by one receiver
MEMORY_STEPS = 10

SERVE = f"""
import resource, sys, time
from local.counters import Counters
from local.faults import Faults
from local.servicebus.config import NamespaceConfig, QueueConfig
from local.servicebus.server import Namespace
config = NamespaceConfig("bench", (QueueConfig({QUEUE!r}, requires_session=True),))
namespace = Namespace(config, port=0, faults=Faults(), counters=Counters())
namespace.start()
print(namespace.connection_string, flush=True)
for _ in sys.stdin:
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    print(time.process_time(), pages * resource.getpagesize(), flush=True)
namespace.stop()
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used: processor time in seconds, resident memory in bytes."""

    cpu_seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Served:
    """A namespace in a process of its own."""

    process: subprocess.Popen[str]
    connection_string: str

    def usage(self) -> Usage:
        """What the process has used so far."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("the namespace was started without pipes")
        print(file=self.process.stdin, flush=True)
        cpu_seconds, memory = self.process.stdout.readline().split()
        return Usage(float(cpu_seconds), int(memory))


@dataclass(slots=True)
class Phases:
    """Seconds spent, on the clock and on the processor by both sides."""

    messages: int = 0
    send: float = 0.0
    receive: float = 0.0
    client_cpu: float = 0.0
    emulator_cpu: float = 0.0


@contextmanager
def served() -> Iterator[Served]:
    """Start a namespace; it ends when its input does."""
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603 - this file's own code
        [sys.executable, "-c", SERVE], stdin=pipe, stdout=pipe, text=True
    ) as process:
        if process.stdout is None:
            raise RuntimeError("the namespace was started without pipes")
        yield Served(process, process.stdout.readline().strip())


def send(sender: ServiceBusSender, session: str, count: int) -> float:
    """Send messages of one session in batches; returns how many seconds it took."""
    began = time.perf_counter()
    for start in range(0, count, BATCH_MESSAGES):
        size = min(BATCH_MESSAGES, count - start)
        sender.send_messages([ServiceBusMessage(BODY, session_id=session) for _ in range(size)])
    return time.perf_counter() - began


def receive(client: ServiceBusClient, session: str, count: int) -> float:
    """Receive and complete them one by one; returns the seconds from the first to the last.

    Opening and closing a receiver does not count: the SDK sleeps for half a second in each.
    """
    left = count
    with client.get_queue_receiver(QUEUE, session_id=session, max_wait_time=10) as receiver:
        began = time.perf_counter()
        while left > 0:
            for message in receiver.receive_messages(min(BATCH_MESSAGES, left)):
                receiver.complete_message(message)
                left -= 1
        return time.perf_counter() - began


def measure(serving: Served, client: ServiceBusClient, total: int) -> Phases:
    """Pass messages through, session by session."""
    phases = Phases()
    with client.get_queue_sender(QUEUE) as sender:
        client_before, emulator_before = time.process_time(), serving.usage().cpu_seconds
        while phases.messages < total:
            session, count = f"s{phases.messages}", min(SESSION_MESSAGES, total - phases.messages)
            phases.send += send(sender, session, count)
            phases.receive += receive(client, session, count)
            phases.messages += count
        phases.client_cpu = time.process_time() - client_before
        phases.emulator_cpu = serving.usage().cpu_seconds - emulator_before
    return phases


def report(phases: Phases) -> None:
    """Print the rates, and who used the processor."""
    seconds, cpu = phases.send + phases.receive, phases.client_cpu + phases.emulator_cpu
    print(f"{phases.messages} messages of {len(BODY)} bytes")
    print(f"  send, in batches          {phases.messages / phases.send:8.0f} /s")
    print(f"  receive and complete      {phases.messages / phases.receive:8.0f} /s")
    print(f"  all three                 {phases.messages / seconds:8.0f} /s")
    for side, spent in (("client SDK", phases.client_cpu), ("emulator", phases.emulator_cpu)):
        each = spent / phases.messages * 1e6
        print(f"  processor, {side:<10} {each:10.0f} us a message, {spent / cpu:4.0%}")


def report_memory(serving: Served, client: ServiceBusClient, total: int) -> None:
    """Pass messages through and print the memory of the namespace after each tenth."""
    step = total // MEMORY_STEPS
    for passed in range(step, total + 1, step):
        measure(serving, client, step)
        print(
            f"  {passed:8d} messages passed  {serving.usage().memory / 2**20:6.1f} MiB", flush=True
        )


def main() -> None:
    """Measure as asked on the command line."""
    parser = argparse.ArgumentParser(prog="bench.local_service_bus", description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--memory", type=int, default=0, help="messages to watch memory over")
    options = parser.parse_args()
    with (
        served() as serving,
        ServiceBusClient.from_connection_string(serving.connection_string) as client,
    ):
        report(measure(serving, client, options.messages))
        if options.memory >= MEMORY_STEPS:
            report_memory(serving, client, options.memory)


if __name__ == "__main__":
    main()

"""The speed of Azure on one machine, and whether it or its client pays for it.

    python -m bench [--messages N] [--items N] [--memory N]
                                [--data] [--profile] [--soak S]

Rates are those of one client that waits for each answer; a message or item has 1 KB. Beside them
stands the processor time of both sides per operation: the emulator should use less than half of
it. Then how long it takes to start and stop, and its memory while many messages pass through. A
soak has messages pass and items come, change, be found and go for so many seconds, and shows
whether memory still grew in its last third.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import fmean

import psutil

from bench import operations
from local.testing.cloud import HOST, CloudProcess, is_open, running_cloud

MEMORY_STEPS = 10
SOAK_READINGS, SOAK_MESSAGES, SOAK_ITEMS = 30, 1000, 100
WARM_UP_MESSAGES, WARM_UP_ITEMS = 500, 200


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=5000, help="through the queue (5000)")
    parser.add_argument("--items", type=int, default=2000, help="of each operation (2000)")
    memory = "messages to watch memory over (100000)"
    parser.add_argument("--memory", type=int, default=100_000, help=memory)
    parser.add_argument("--data", action="store_true", help="keep content on disk, as --data does")
    profile = "print where the emulator's time goes instead"
    parser.add_argument("--profile", action="store_true", help=profile)
    soak = "watch memory for so many seconds under load of all kinds instead"
    parser.add_argument("--soak", type=float, default=0.0, metavar="SECONDS", help=soak)
    return parser.parse_args()


def print_rates(emulator: CloudProcess, messages: int, items: int) -> None:
    operations.pass_through(emulator, WARM_UP_MESSAGES)
    sending, receiving = operations.pass_through(emulator, messages)
    print(operations.HEAD)
    for row in (sending, receiving, operations.add_timings(sending, receiving)):
        print(row.line())
    for row in operations.access_items(emulator, items):
        print(row.line(), flush=True)


def print_memory(emulator: CloudProcess, total: int) -> None:
    step = total // MEMORY_STEPS
    if step == 0:
        return
    process = psutil.Process(emulator.child.pid)
    memory = process.memory_info().rss / 2**20
    print(f"\nmemory before                {memory:8.1f} MiB", flush=True)
    for passed in range(step, step * MEMORY_STEPS + 1, step):
        operations.pass_through(emulator, step)
        memory = process.memory_info().rss / 2**20
        print(f"  after {passed:8d} messages    {memory:8.1f} MiB", flush=True)


def soak(emulator: CloudProcess, seconds: float) -> None:
    process = psutil.Process(emulator.child.pid)
    began, readings, messages, items = time.monotonic(), list[float](), 0, 0
    while (passed := time.monotonic() - began) < seconds:
        if passed >= len(readings) * seconds / SOAK_READINGS:
            memory = process.memory_info().rss / 2**20
            readings.append(memory)
            line = f"{passed:6.0f} s {messages:9d} messages {items:9d} items {memory:8.1f} MiB"
            print(line, flush=True)
        operations.pass_through(emulator, SOAK_MESSAGES)
        operations.turn_items_over(emulator, SOAK_ITEMS)
        messages, items = messages + SOAK_MESSAGES, items + SOAK_ITEMS
    third = max(len(readings) // 3, 1)
    thirds = [fmean(readings[at : at + third]) for at in (0, third, len(readings) - third)]
    text = ", ".join(f"{memory:.1f}" for memory in thirds)
    print(f"\nmemory by thirds of the time: {text} MiB; without success: {count_errors(emulator)}")


def count_errors(emulator: CloudProcess) -> int:
    """Return what the emulator counted as no success, of all components."""
    counters = emulator.control.read_counters()
    return sum(
        int(figures["count"])
        for component, table in counters.items()
        if component.startswith(("servicebus.", "cosmos"))
        for statuses in table.values()
        for status, figures in statuses.items()
        if status != "ok" and not status.startswith("2")
    )


def measure(options: argparse.Namespace, scratch: Path) -> None:
    words = ["--no-hosts"]
    if options.data:
        words += ["--data", str(scratch / "data")]
    profile = scratch / "profile"
    program = ("-m", "bench.sampling", str(profile)) if options.profile else ("-m", "local")
    began = time.perf_counter()
    with running_cloud(*words, program=program) as emulator:
        start_seconds = time.perf_counter() - began
        if options.soak:
            soak(emulator, options.soak)
        else:
            print_rates(emulator, options.messages, options.items)
        if not options.profile and not options.soak:
            print_memory(emulator, options.memory)
        began = time.perf_counter()
        emulator.stop()
        stop_seconds = time.perf_counter() - began
        still_open = [port for port in find_ports(emulator) if is_open(port)]
    print(f"\nstart {start_seconds:.2f} s, stop {stop_seconds:.2f} s", end="")
    print(f", ports still open: {still_open or 'none'}")
    if options.profile:
        print(profile.read_text())


def find_ports(emulator: CloudProcess) -> list[int]:
    words = json.dumps(emulator.contract).replace("/", " ").replace(";", " ").split()
    numbers = (word.partition(":")[2].strip('",}') for word in words if HOST in word)
    return [int(number) for number in numbers if number.isdigit()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-local-") as directory:
        measure(parse_arguments(), Path(directory))

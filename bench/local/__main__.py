"""How fast Azure on one machine is, and whether it or its client pays for it.

    python -m bench.local [--messages N] [--items N] [--memory N] [--data] [--profile]

Rates are those of one client that waits for each answer; a message or item has 1 KB. Beside them
stands the processor time of both sides per operation: the emulator should use less than half of
it. Then how long it takes to start and stop, and its memory while many messages pass through.
"""

import argparse
import tempfile
from pathlib import Path

from bench.local import cosmos, service_bus
from bench.local.emulator import Emulator, running
from bench.local.measure import HEAD

MEMORY_STEPS = 10
WARM_UP_MESSAGES, WARM_UP_ITEMS = 500, 200


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.local",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=5000, help="through the queue (5000)")
    parser.add_argument("--items", type=int, default=2000, help="of each operation (2000)")
    parser.add_argument(
        "--memory", type=int, default=100_000, help="messages to watch memory over (100000)"
    )
    parser.add_argument("--data", action="store_true", help="keep content on disk, as --data does")
    parser.add_argument(
        "--profile", action="store_true", help="print where the emulator's time goes instead"
    )
    return parser.parse_args()


def print_rates(emulator: Emulator, messages: int, items: int) -> None:
    """Measure every kind of operation, after a warm-up."""
    service_bus.pass_through(emulator, WARM_UP_MESSAGES)
    sending, receiving = service_bus.pass_through(emulator, messages)
    print(HEAD)
    for row in (sending, receiving, service_bus.both(sending, receiving)):
        print(row.line())
    for row in cosmos.run(emulator, items):
        print(row.line(), flush=True)


def print_memory(emulator: Emulator, total: int) -> None:
    """Pass messages through and print the emulator's memory after each tenth."""
    step = total // MEMORY_STEPS
    if step == 0:
        return
    print(f"\nmemory before                {emulator.memory_bytes() / 2**20:8.1f} MiB", flush=True)
    for passed in range(step, step * MEMORY_STEPS + 1, step):
        service_bus.pass_through(emulator, step)
        memory = emulator.memory_bytes() / 2**20
        print(f"  after {passed:8d} messages    {memory:8.1f} MiB", flush=True)


def print_stop(emulator: Emulator) -> None:
    """Stop it, and say what is left of it."""
    seconds = emulator.stop()
    print(f"\nstart {emulator.start_seconds:.2f} s, stop {seconds:.2f} s", end="")
    print(f", ports still open: {emulator.open_ports() or 'none'}")


def measure(options: argparse.Namespace, scratch: Path) -> None:
    """Measure all, or sample where the time goes."""
    data = scratch / "data" if options.data else None
    profile = scratch / "profile" if options.profile else None
    with running(data, profile=profile) as emulator:
        print_rates(emulator, options.messages, options.items)
        if profile is None:
            print_memory(emulator, options.memory)
        print_stop(emulator)
    if profile is not None:
        print(profile.read_text())


def main() -> None:
    """Measure as asked on the command line."""
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="bench-local-") as scratch:
        measure(options, Path(scratch))


if __name__ == "__main__":
    main()

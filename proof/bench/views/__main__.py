"""`python -m proof.bench.views`: what each view and each reading command costs where there is much.

A journal is filled with sessions, halted sessions and sagas, and the error queues with reports.
Then every view of the operations page, and every command of the command line that only looks, is
asked several times. Times are medians, in milliseconds; `processor` is the time of the processors
of all processes together. Calls of the store, request units and operations of the broker are exact.
Exit status: 0 all aims hold, 1 one does not (it is named), 2 the measurement could not be made.
"""

import asyncio
import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import urlencode
from urllib.request import urlopen

from cli.__main__ import main as run_command
from cli.cloud import KEY
from cli.running import run_program
from local.testing.children import read_cpu_seconds
from local.testing.cloud import CloudProcess
from local.testing.control import flatten_counters, subtract_tallies
from proof.bench.systems import NO_CLOCKWORK
from proof.bench.views import filling
from proof.testbed.cloud import running_cloud
from proof.testbed.command import (
    RunFailed,
    exit_status,
    make_parser,
    parse_count,
    resolve_path,
    show_progress,
)

AIM_MISSED = 1
# What asks the journal by the clock or by the feed is switched off, so that counts are exact.
QUIET = NO_CLOCKWORK | {
    f"AzureWebJobs_{name}_Disabled": "true" for name in ("recover", "begin_sagas", "purge_sagas")
}
MILLISECONDS_MAX = 400.0
# A look into an error queue with many sessions takes that long.
ANSWER_SECONDS_MAX = 300.0
# So many sagas are walked step by step.
WALKED = 40
HERE = "west"


@dataclass(frozen=True, slots=True)
class JournalSize:
    """The number of sessions, sagas, halted sessions among them, and reports of strays."""

    sessions: int
    sagas: int
    halted: int
    reports: int


@dataclass(frozen=True, slots=True)
class ViewCost:
    """The cost of a look at a view; times are in milliseconds."""

    name: str
    milliseconds: float
    processor: float
    calls: int
    units: float
    bus: int

    def __str__(self) -> str:
        times = f"{self.milliseconds:9.0f}{self.processor:11.0f}"
        return f"{self.name:34}{times}{self.calls:8}{self.units:9.1f}{self.bus:7}"


async def fill(cloud: CloudProcess, size: JournalSize) -> None:
    async with filling.open_worker(cloud, HERE) as services:

        async def halt(number: int) -> None:
            causes = [*filling.CAUSES.values()]
            await filling.halt(services, f"halted-{number:05d}", causes[number % len(causes)])

        async def run_saga(number: int) -> None:
            started = await filling.begin_saga(services, number, waits=bool(number % 2))
            if number < WALKED:
                await filling.walk_saga(services, started)
            elif not number % 2:
                await filling.complete_saga(services, started)

        begun = time.monotonic()
        names = (f"N{number:05d}" for number in range(size.sessions - size.halted))
        await filling.work_all(lambda name: filling.begin_session(services, name), names)
        show_progress(f"sessions: {time.monotonic() - begun:.0f} s")
        await filling.work_all(halt, range(size.halted))
        show_progress(f"halted: {time.monotonic() - begun:.0f} s")
        await filling.stock(services)
        await filling.work_all(run_saga, range(size.sagas))
        show_progress(f"sagas: {time.monotonic() - begun:.0f} s")
        strays = (f"stray-{number:04d}" for number in range(size.reports))
        await filling.work_all(lambda name: filling.add_report(services, name), strays)
        show_progress(f"reports: {time.monotonic() - begun:.0f} s")
        await filling.process_many(services, "N00000", 40)
    show_progress(f"filled: {time.monotonic() - begun:.0f} s")


def list_pages() -> Iterator[tuple[str, str, Mapping[str, str]]]:
    yield "overview", "", {"refresh": "no"}
    yield "needs attention", "/faults", {}
    yield "needs attention, one kind", "/faults", {"kind": "halt"}
    yield "regions", "/regions", {}
    yield "sessions by name", "/sessions", {}
    yield "sessions after a name", "/sessions", {"after": "N05000"}
    yield "sessions by prefix", "/sessions", {"prefix": "N0123"}
    yield "sessions by last change", "/sessions", {"order": "changed"}
    yield "sessions, halted", "/sessions", {"state": "halted"}
    yield "session", "/session", {"session": "N00000"}
    yield "session, halted", "/session", {"session": "halted-00001"}
    yield "error queue", "/errors", {}
    yield "error queue, one session", "/errors", {"session": "stray-0001"}
    yield "error queue, all of a session", "/errors", {"session": "stray-0001", "show": "all"}
    yield "sagas", "/sagas", {}
    yield "sagas under way", "/sagas", {"state": "running"}
    yield "saga, completed", "/saga", {"key": "order-00000"}
    yield "saga that waits", "/saga", {"key": "order-00001"}


COMMANDS = (
    "health",
    "sessions",
    "sessions --changed",
    "sessions --state halted",
    "show N00000",
    "show halted-00001",
    "faults",
    "decisions",
    "errors",
    "errors stray-0001",
    "sagas",
    "sagas --state running",
    "sagas order-00000",
)


def measure_view(cloud: CloudProcess, name: str, look: Callable[[], None], rounds: int) -> ViewCost:
    """Look once so that nothing is new, and then some times, and tell what one look costs."""
    look()
    hosts = [int(host["pid"]) for host in cloud.control.read_hosts().values()]

    def read_processor() -> float:
        own = time.process_time() + read_cpu_seconds(cloud.child.pid)
        return own + sum(read_cpu_seconds(pid, with_children=True) for pid in hosts)

    times, spent = list[float](), list[float]()
    before = flatten_counters(cloud.control.read_counters())
    for _ in range(rounds):
        processor, begun = read_processor(), time.perf_counter()
        look()
        times.append(time.perf_counter() - begun)
        spent.append(read_processor() - processor)
    rows = subtract_tallies(before, flatten_counters(cloud.control.read_counters()))
    stored = [tally for (at, *_), tally in rows.items() if at.startswith("cosmos.")]
    # Receivers that ask for a session of the empty inbound queue are no part of a look.
    bus = [
        count
        for (at, operation, status), (count, _) in rows.items()
        if at.startswith("servicebus.") and operation != "authorize" and status != "timeout"
    ]
    return ViewCost(
        name,
        1000 * median(times),
        1000 * median(spent),
        sum(count for count, _ in stored) // rounds,
        sum(units for _, units in stored) / rounds,
        sum(bus) // rounds,
    )


def open_page(cloud: CloudProcess, view: str, parameters: Mapping[str, str]) -> None:
    query = urlencode({"code": KEY, **parameters})
    address = f"{cloud.contract['hosts'][HERE]}/api/operate{view}?{query}"
    # Of another status it raises, which is an OSError.
    with urlopen(address, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - our own host
        if b"This page cost" not in answer.read():
            raise RunFailed(f"{view or 'the overview'} does not say what it cost")


def run_words(command: str) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        ended = run_command(["--timeout", str(ANSWER_SECONDS_MAX), *command.split()])
    if ended not in (0, 1):
        raise RunFailed(f"lockstep {command} ended with {ended}: {said.getvalue()}")


def run_views(size: JournalSize, data: Path, rounds: int) -> int:
    is_filled = data.exists()
    with running_cloud("--data", str(data), settings=QUIET) as cloud:
        if not is_filled:
            asyncio.run(fill(cloud, size))
        # The sweeps, which are switched off, would look once a minute.
        asyncio.run(filling.record_look(cloud))
        hosts = cloud.contract["hosts"]
        os.environ |= {
            "LOCKSTEP_URL": ",".join([hosts[HERE], *(u for r, u in hosts.items() if r != HERE)]),
            "LOCKSTEP_KEY": KEY,
        }
        print(f"{'':34}{'ms':>9}{'processor':>11}{'calls':>8}{'RU':>9}{'bus':>7}")
        costs = []
        for name, view, parameters in list_pages():
            look = partial(open_page, cloud, view, parameters)
            costs.append(measure_view(cloud, name, look, rounds))
            print(costs[-1], flush=True)
        for command in COMMANDS:
            look = partial(run_words, command)
            costs.append(measure_view(cloud, f"lockstep {command}", look, rounds))
            print(costs[-1], flush=True)
    slow = [one for one in costs if one.milliseconds > MILLISECONDS_MAX]
    for one in slow:
        print(f"aim missed: {one.name}: {one.milliseconds:.0f} ms, at most {MILLISECONDS_MAX:g}")
    if not slow:
        print("all aims hold")
    return AIM_MISSED if slow else 0


def main(words: Sequence[str]) -> int:
    parser = make_parser("proof.bench.views", __doc__)
    parser.add_argument("--sessions", type=parse_count, default=10_000)
    parser.add_argument("--sagas", type=parse_count, default=1_000)
    parser.add_argument("--halted", type=parse_count, default=1_000)
    parser.add_argument("--reports", type=parse_count, default=200)
    parser.add_argument("--rounds", type=parse_count, default=7, help="looks at each view")
    parser.add_argument(
        "--data", type=resolve_path, metavar="DIR", help="keep what was filled; it is used again"
    )
    given = parser.parse_args(words)
    size = JournalSize(given.sessions, given.sagas, given.halted, given.reports)
    with tempfile.TemporaryDirectory(prefix="views-") as folder:
        data = given.data or Path(folder) / "data"
        return exit_status(
            "python -m proof.bench.views", lambda: run_views(size, data, given.rounds)
        )


if __name__ == "__main__":
    run_program(main)

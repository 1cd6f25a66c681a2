"""The cost of a feed that sends nowhere, beside that of an earlier state of the code.

    python -m proof.bench.spark_pass --before PATH [--cases day,year,sessions,key] [--rounds N]

PATH is a checkout of the earlier state (`git worktree add PATH COMMIT`). Each case is fed twice by
a manifest, by each of the two in turn: the first run binds everything, and the second one finds
nothing new. The sender takes every message and sends it nowhere, so there is no cloud.

Jobs and shuffles are counted from Spark's event log, and are the same in every run. *busy* is the
processor time of all processes of a run, of Java and of Python; a shared machine changes it less
than it changes seconds. With several rounds the least of each is shown.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow
from pyarrow import parquet

from proof.testbed.cloud import ROOT
from proof.testbed.command import RunFailed, exit_status, make_parser, parse_count, show_progress

PROGRAM = "proof.bench.spark_pass"
LOOK_SECONDS = 0.2
SESSIONS, KEY_ROWS = 1_000_000, 200_000
FLIGHTS = "spark.samples.flights.feed"
# A setting for each that a feed reads before it starts; nothing connects to them.
SETTINGS = {"LOCKSTEP_REGIONS": "east", "ServiceBus_east": "east", "Cosmos": "nowhere"}
MAPPING = {
    "format": "parquet",
    "columns": {"account": "string", "line": "bigint", "amount": "bigint", "note": "string"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount", "note"],
    "type": "account.add",
}
HEAD = f"{'':30}{'jobs':>6}{'shuffles':>10}{'seconds':>9}{'busy s':>8}{'Java':>8}{'Python':>8}"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run of a feed; its seconds include the start of Spark."""

    jobs: int
    shuffles: int
    seconds: float
    java: float
    python: float

    def __or__(self, other: "Cost") -> "Cost":
        """The least of each."""
        seconds, java = min(self.seconds, other.seconds), min(self.java, other.java)
        return Cost(self.jobs, self.shuffles, seconds, java, min(self.python, other.python))


def main() -> int:
    parser = make_parser(PROGRAM, __doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="PATH", help="a checkout")
    cases = "which of them (all)"
    parser.add_argument("--cases", default="day,year,sessions,key", metavar="NAMES", help=cases)
    parser.add_argument("--rounds", type=parse_count, default=1, metavar="N", help="of each (1)")
    options = parser.parse_args()
    return exit_status(PROGRAM, lambda: compare_checkouts(options))


def compare_checkouts(options: argparse.Namespace) -> int:
    print(HEAD, flush=True)
    checkouts = {"before": options.before.resolve(), "now": ROOT}
    with tempfile.TemporaryDirectory(prefix="bench-pass-") as scratch:
        for case in options.cases.split(","):
            words = prepare_case(case, Path(scratch))
            least: dict[tuple[str, str], Cost] = {}
            for number in range(options.rounds):
                for name, root in checkouts.items():
                    show_progress(f"{case}, {name}, round {number + 1}")
                    folder = Path(scratch, f"{case}-{name}-{number}")
                    for run in ("first", "second"):
                        cost = run_feed_of(root, folder, run, words)
                        least[run, name] = least.get((run, name), cost) | cost
            for (run, name), cost in sorted(least.items()):
                print(format_cost(f"{case}, {run} run, {name}", cost), flush=True)
    return 0


def format_cost(name: str, cost: Cost) -> str:
    busy = f"{cost.java + cost.python:8.1f}{cost.java:8.1f}{cost.python:8.1f}"
    return f"{name:30}{cost.jobs:6}{cost.shuffles:10}{cost.seconds:9.1f}{busy}"


def prepare_case(case: str, folder: Path) -> list[str]:
    """Write the table of a case; return the words of its feed, but for where its results go."""
    days, rows = {"day": 1, "year": 365}, {"sessions": SESSIONS, "key": KEY_ROWS}
    if case in days:
        return [FLIGHTS, f"--days={days[case]}"]
    if case not in rows:
        raise RunFailed(f"{case} is none of {', '.join((*days, *rows))}")
    mapping, table = folder / "mapping.json", folder / f"{case}.parquet"
    mapping.write_text(json.dumps(MAPPING))
    numbers = range(rows[case])
    accounts = [f"account-{n if case == 'sessions' else 0:07}" for n in numbers]
    notes = [f"booking {n * 7919 % 1_000_003}" for n in numbers]
    columns = {"account": accounts, "line": numbers, "amount": numbers, "note": notes}
    parquet.write_table(pyarrow.table({n: pyarrow.array(c) for n, c in columns.items()}), table)
    return ["spark.feed", f"--source={table}", f"--mapping={mapping}", "--group=bench"]


def run_feed_of(root: Path, folder: Path, run: str, words: Sequence[str]) -> Cost:
    """Run a checkout's feed. Raises RunFailed unless it ends well."""
    log, module = folder / f"log-{run}", words[0]
    log.mkdir(parents=True)
    places = [f"--{name}={folder / name}" for name in ("manifest", "rejects")]
    environment = (
        os.environ
        | SETTINGS
        | {
            "PYTHONPATH": f"{root}{os.pathsep}{root / 'emulator'}",
            "PYSPARK_SUBMIT_ARGS": f"--conf spark.eventLog.enabled=true "
            f"--conf spark.eventLog.dir=file://{log} --conf spark.eventLog.compress=false "
            "--conf spark.eventLog.rolling.enabled=false pyspark-shell",
        }
    )
    command = [sys.executable, str(Path(__file__).with_name("one_feed.py")), module, *words[1:]]
    began, errors = time.monotonic(), folder / f"{run}.txt"
    with errors.open("w") as output:
        child = subprocess.Popen(  # noqa: S603 - our own module
            [*command, *places], env=environment, cwd=root, stdout=output, stderr=output
        )
        with watch_processes(child.pid) as busy:
            status = child.wait()
    seconds = time.monotonic() - began
    if status:
        raise RunFailed(f"{module} of {root} ended with {status}: {errors.read_text()[-2000:]}")
    jobs, shuffles = count_jobs(log)
    java = sum(used for name, used in busy.values() if name == "java")
    return Cost(jobs, shuffles, seconds, java, sum(used for _, used in busy.values()) - java)


@contextmanager
def watch_processes(root: int) -> Iterator[dict[int, tuple[str, float]]]:
    """Names and processor time of a process and those below it, but for their last moment."""
    busy: dict[int, tuple[str, float]] = {}
    ended = threading.Event()

    def watch() -> None:
        parent = psutil.Process(root)
        while not ended.wait(LOOK_SECONDS):
            # One that goes meanwhile keeps the time it was seen with.
            with suppress(psutil.NoSuchProcess):
                for process in (parent, *parent.children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        times = process.cpu_times()
                        busy[process.pid] = process.name(), times.user + times.system

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield busy
    finally:
        ended.set()
        thread.join()


def count_jobs(log: Path) -> tuple[int, int]:
    """The jobs in a Spark event log, and the stages that have written a shuffle."""
    jobs, shuffled = 0, set()
    for line in next(log.iterdir()).read_text().splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart":
                jobs += 1
            case "SparkListenerTaskEnd" if event["Task Type"] == "ShuffleMapTask":
                shuffled.add(event["Stage ID"])
    return jobs, len(shuffled)


if __name__ == "__main__":
    sys.exit(main())

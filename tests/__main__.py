"""Run the tests in one of three sizes: `python -m tests check`, `test` or `proof`.

check   lint, types, import contracts, each promise in memory, and the other fast tests: two minutes
test    lint, each promise in memory, then every kind of test, the large ones as samples
proof   everything at full size, hours of it; writes a page of what was run and what failed

Each step ends with a line, and the first one that fails is the last. A test that starts processes,
and fails only because it waited too long, found its port taken, or could not start one, is run once
more by itself; whatever else fails is not. Exit status: 0 all passed, 1 something failed, 130
interrupted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.promises import TESTS_BY_PROMISE
from tests.sizes import FIRST_SEED, PROVED_SEEDS, choose_first_seed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/proof-run.md"
PYTHON = sys.executable
# More of them to be run again would say something about the code.
AGAIN_MAX = 3
FAST = "not wire and not spark and not e2e"
INTERRUPTED = 130
FUZZ_SECONDS = 600  # for each service
ASKED_SEEDS = 2_000


@dataclass(frozen=True, slots=True)
class Step:
    """A command; one of pytest when `tests` says with which words."""

    name: str
    command: tuple[str, ...] = ()
    tests: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended, with the last line that it printed and what was run again."""

    step: Step
    status: int
    seconds: float
    said: str
    again: tuple[str, ...] = ()

    @property
    def ending(self) -> str:
        """One word; a step that could not be had here says so with its last line."""
        if self.status:
            return "failed"
        return "not run" if self.said.startswith("not run") else "passed"

    def __str__(self) -> str:
        ending = self.ending if not self.status else f"FAILED with exit status {self.status}"
        again = f"; run again by itself: {', '.join(self.again)}" if self.again else ""
        return f"=== {self.step.name}: {ending} in {self.seconds:.0f} s{again}"


def make(*words: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", *words)


LINT = Step("lint", make("-j2", "--output-sync=target", "lint"))
PROMISE_FILES = sorted({file for files in TESTS_BY_PROMISE.values() for file in files})
PROMISES = Step("promises", tests=("-q", *PROMISE_FILES))
# A file that is named runs whole, so nothing of these is left for the step after.
OTHERS = tuple(f"--ignore={file}" for file in PROMISE_FILES)
FAST_TESTS = Step("fast tests", tests=("-n", "2", "-m", f"{FAST} and not slow", *OTHERS))
CHECK = (LINT, PROMISES, FAST_TESTS)
# Many of them wait for processes to start: with three at once, two cores idle a third of the time.
TEST = (LINT, PROMISES, Step("a sample of each kind", tests=("-n", "4", *OTHERS)))


def prove(name: str, *words: str) -> Step:
    """A part of the tests at full size."""
    return Step(name, tests=words, environment=(("TESTS_PROOF", "1"),))


def choose_parts(seeds: int) -> tuple[Step, ...]:
    """Everything, the quick parts first."""
    return (
        LINT,
        prove("unit", "-n", "2", "tests/unit", "tests/docs", "tests/contract", "tests/infra"),
        prove("emulator", "-n", "3", "emulator/tests"),
        prove("scenarios", "-n", "2", "tests/scenarios", "tests/releases"),
        prove("wire", "-n", "2", "tests/wire"),
        prove("spark", "tests/spark"),
        prove("e2e", "-n", "2", "tests/e2e"),
        prove("crash-points", "-n", "2", "tests/crash_points"),
        prove("model", "tests/model"),
        prove("mutants", "-n", "2", "tests/mutants"),
        prove("simulation", "-n", "2", "tests/simulation"),
        *(
            Step(f"seeds-{name}", make("simulate", f"SEEDS={seeds}", f"PROFILE={name}"))
            for name in ("rough", "fair")
        ),
        Step("seeds-asks", make("simulate", f"SEEDS={ASKED_SEEDS}", "ARGS=--scenario asks")),
        Step("mutants-by-seeds", (PYTHON, "-m", "tests.mutants")),
        Step("demo", make("demo", "ARGS=--fresh")),
        Step("demo-saga", make("demo-saga")),
        Step("chaos", make("chaos")),
        Step("docs", make("docs")),
        Step("audit", make("audit")),
        Step("conformance", make("conformance")),
        Step("fuzz", make("fuzz", f"SECONDS={FUZZ_SECONDS}")),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    choose_first_seed()
    try:
        if chosen.size == "proof":
            return run_proof(choose_parts(chosen.seeds), chosen.part)
        for ended in run_steps({"check": CHECK, "test": TEST}[chosen.size]):
            if ended.status:
                return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parts = [step.name for step in choose_parts(0)]
    parser = argparse.ArgumentParser(
        prog="python -m tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("size", choices=("check", "test", "proof"))
    parser.add_argument(
        "--part",
        action="append",
        choices=parts,
        help="of the proof, this part alone (repeatable); no page is written then",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=PROVED_SEEDS,
        help=f"of the proof's simulation, of each profile ({PROVED_SEEDS})",
    )
    return parser.parse_args(arguments)


def run_proof(parts: Sequence[Step], only: Sequence[str] | None) -> int:
    """Run all parts, or some, whatever becomes of the others, and write the page."""
    endings = [*run_steps([one for one in parts if not only or one.name in only])]
    if not only:
        PAGE.write_text(describe(endings), encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)} says what was run; commit it with a release")
    return 1 if any(ended.status for ended in endings) else 0


def run_steps(steps: Sequence[Step]) -> Iterator[Ended]:
    """Run steps and print a line as each begins and ends."""
    for step in steps:
        print(f"=== {step.name}", flush=True)
        began = time.monotonic()
        again: tuple[str, ...] = ()
        if step.tests is None:
            status, said = run(step, step.command)
        else:
            status, said, again = run_tests(step, step.tests)
        ended = Ended(step, status, time.monotonic() - began, said, again)
        print(ended, flush=True)
        yield ended


def run_tests(step: Step, words: Sequence[str]) -> tuple[int, str, tuple[str, ...]]:
    """Run pytest, and what only wanted time or a port once more by itself."""
    with tempfile.TemporaryDirectory(prefix="lockstep-tests-") as folder:
        failures = Path(folder) / "failures.json"
        # Named, configuration and plugin are in force for tests of the emulator alone as well.
        ours = ("-c", "pyproject.toml", "-p", "tests.plugin", "--failures", str(failures))
        pytest = (PYTHON, "-m", "pytest", *ours)
        status, said = run(step, (*pytest, *words))
        failed = json.loads(failures.read_text("utf-8")) if failures.exists() else {}
        again = tuple(failed)
        if status != 1 or not all(failed.values()) or not 0 < len(again) <= AGAIN_MAX:
            return status, said, ()
        print(f"=== run again by itself: {', '.join(again)}", flush=True)
        status, _ = run(step, (*pytest, "-n", "0", *again))
        return status, said, again


def run(step: Step, command: Sequence[str]) -> tuple[int, str]:
    """Run a command and show what it prints; returns its status and its last line."""
    environment = os.environ | dict(step.environment)
    said = b""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 65_536):
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            said = (said + piece)[-65_536:]
    lines = said.decode(errors="replace").strip().splitlines()
    # The page is committed, so it names no folder of the machine that it was made on.
    last = lines[-1].strip("= ").replace(f"{ROOT}/", "") if lines else ""
    return process.returncode, last


def describe(endings: Sequence[Ended]) -> str:
    """The page of a proof."""
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%H of %cs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    failed = [ended.step.name for ended in endings if ended.status]
    rows = [
        f"| {ended.step.name} | {ended.ending} | {ended.seconds:.0f} s "
        f"| {ended.said.replace('|', ' ')} | {', '.join(ended.again) or 'none'} |"
        for ended in endings
    ]
    return "\n".join(
        [
            "# The last proof",
            "",
            "Written by `make proof`, which runs everything at full size.",
            "What each part shows is in [proof.md](proof.md).",
            "",
            f"- commit {commit}, run on {datetime.now(UTC):%Y-%m-%d}",
            f"- {os.cpu_count()} processors, Python {sys.version.split()[0]}",
            f"- first of the seeds that differ from run to run: {os.environ[FIRST_SEED]}",
            f"- failed: {', '.join(failed) or 'nothing'}",
            "",
            "| part | ended | took | its last line | run again by itself |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

"""All files of the suites, each in processes of pytest of its own, several at a time."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.catalogue import SUITES
from conformance.fetching import fetch_archive, unpack_tests

ROOT = Path(__file__).parents[1]
TEST_SECONDS_MAX = 900
LARGE_FILE_BYTES = 30_000
NOTHING_RAN = 5  # pytest's exit status when all tests of a file were left out

# What a process of pytest is told by its environment
REPORT = "CONFORMANCE_REPORT"  # the file that it writes its outcomes to
SUITE = "CONFORMANCE_SUITE"  # the suite by its name
PART = "CONFORMANCE_PART"  # which tests of the file are its own: every so many, from which on
ONLY = "CONFORMANCE_ONLY"  # patterns of the tests that shall run, one a line


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a test: `passed`, `refused`, `failed` or `not applicable`, and why."""

    suite: str
    test: str
    ending: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """The tests of a file that one process runs: each `parts`-th one, from number `part` on."""

    suite: str
    folder: Path
    file: Path
    part: int
    parts: int
    environment: Mapping[str, str]


class Run:
    """One run of some suites. It leaves nothing behind, however it ends, but what was fetched."""

    def __init__(self, only: Mapping[str, tuple[str, ...]], seconds_max: float) -> None:
        """`only` names the suites, each with patterns of the tests that shall run.

        What has not ended after the time has failed.
        """
        self._only = only
        self._deadline = time.monotonic() + seconds_max
        self._processes: set[subprocess.Popen[str]] = set()
        self._over = False

    def run(self) -> Iterator[Outcome]:
        """Give the outcomes as files end; raises NotFetched before anything runs."""
        archives = {name: fetch_archive(SUITES[name]) for name in self._only}
        with ExitStack() as stack:
            place = Path(stack.enter_context(TemporaryDirectory()))
            runs = []
            for name, archive in archives.items():
                environment = stack.enter_context(SUITES[name].start())
                folder = unpack_tests(archive, place / name)
                pool = stack.enter_context(ThreadPoolExecutor(SUITES[name].processes))
                stack.callback(self._end, pool)
                shares = self._divide(name, folder, environment)
                runs += [pool.submit(self._run_share, share) for share in shares]
            for done in as_completed(runs):
                yield from done.result()

    def _divide(self, name: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Share]:
        """Yield the largest files first: they take longest, and should not be left for the end."""
        files = [
            file
            for file in folder.rglob("test_*.py")
            if any(may_hold(str(file.relative_to(folder)), pattern) for pattern in self._only[name])
        ]
        for file in sorted(files, key=lambda file: -file.stat().st_size):
            parts = SUITES[name].parts if file.stat().st_size > LARGE_FILE_BYTES else 1
            for part in range(parts):
                yield Share(name, folder, file, part, parts, environment)

    def _run_share(self, share: Share) -> list[Outcome]:
        """All outcomes of a share; one more, a failure, when it could not be run to its end."""
        suite = SUITES[share.suite]
        name = str(share.file.relative_to(share.folder))
        report = share.file.with_suffix(f".report{share.part}")
        command = [sys.executable, "-m", "pytest", name, "-q", *suite.options]
        command += ["-p", suite.preparer, "-p", "conformance.reporting", "--tb=short"]
        command += ["-p", "no:cacheprovider", "--disable-warnings", f"--timeout={TEST_SECONDS_MAX}"]
        problem = ""
        if not self._over:
            with subprocess.Popen(  # noqa: S603 - pytest, no shell
                command,
                cwd=share.folder,
                env=self._describe(share, report),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process:
                self._processes.add(process)
                try:
                    output, _ = process.communicate(timeout=self._deadline - time.monotonic())
                    if process.returncode not in (0, 1, NOTHING_RAN):
                        problem = output[-4000:]
                except subprocess.TimeoutExpired:
                    process.kill()
                    problem = "did not end in the time of the whole run"
                finally:
                    self._processes.discard(process)
        lines = report.read_text().splitlines() if report.exists() else []
        outcomes = {
            one.test: one for one in (judge(share.suite, *json.loads(line)) for line in lines)
        }
        broken = [Outcome(share.suite, name, "failed", problem)] if problem else []
        return [*outcomes.values(), *broken]

    def _describe(self, share: Share, report: Path) -> dict[str, str]:
        return {
            **os.environ,
            **share.environment,
            "PYTHONPATH": os.pathsep.join(
                map(str, (ROOT, share.folder, share.folder / "mgmt_tests"))
            ),
            SUITE: share.suite,
            REPORT: str(report),
            PART: f"{share.part} {share.parts}",
            ONLY: "\n".join(self._only[share.suite]),
        }

    def _end(self, pool: ThreadPoolExecutor) -> None:
        self._over = True
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self._processes):
            process.kill()


def may_hold(file: str, pattern: str) -> bool:
    """Return whether a file may hold tests that fit a pattern, which may go on with `::` and names.

    >>> may_hold("test_topic.py", "test_t*::TestTopic::*"), may_hold("test_topic.py", "test_q*")
    (True, False)
    """
    return fnmatchcase(file, pattern.partition("::")[0])


def judge(name: str, test: str, ending: str, text: str) -> Outcome:
    """Return what an outcome that pytest reports means here."""
    refusals = re.findall(SUITES[name].refusal, text) if ending == "failed" else []
    if refusals:  # the last is the exception's, those before may be source code
        return Outcome(name, test, "refused", refusals[-1].replace("\\", "").strip())
    if ending == "skipped":
        return Outcome(name, test, "not applicable", f"the suite skips it: {text}")
    if ending == "deselected":
        return Outcome(name, test, "not applicable", text)
    return Outcome(name, test, ending, text)

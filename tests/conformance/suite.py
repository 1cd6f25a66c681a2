"""What a live test suite of an SDK is to us, and how all of its files are run."""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_SECONDS = 180
FILE_SECONDS = 600
REPORT = "CONFORMANCE_REPORT"  # the file that a process of pytest writes its outcomes to
SUITE = "CONFORMANCE_SUITE"  # the suite by its name


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Tests that say nothing about the emulator, and why.

    `tests` are patterns of `file.py::Class::test[parameters]`.
    """

    reason: str
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests below `folder` of a source distribution that have one of `marks`.

    Those that have none of them, but one of `other_marks`, are not applicable, for its reason.
    `start` runs the service for as long as the context lasts and gives the environment of the
    tests. `preparer` is a module that replaces the suite's own configuration when pytest loads it.
    A test that fails with the text `refusal` was refused by name.
    """

    distribution: str
    version: str
    folder: str
    marks: tuple[str, ...]
    other_marks: Mapping[str, str]
    preparer: str
    start: Callable[[], AbstractContextManager[Mapping[str, str]]]
    refusal: str
    not_applicable: tuple[NotApplicable, ...]

    def find_reason(self, test: str, marks: set[str]) -> str | None:
        """Why a test with these marks is not applicable, None when it is."""
        if marks.isdisjoint(self.marks):
            return next(reason for mark, reason in self.other_marks.items() if mark in marks)
        fits = (
            one.reason
            for one in self.not_applicable
            if any(fnmatchcase(test, pattern) for pattern in one.tests)
        )
        return next(fits, None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a test ended: `passed`, `refused`, `failed` or `not applicable`, and why."""

    test: str
    ending: str
    reason: str = ""


def fetch(suite: Suite, place: Path) -> Path:
    """Download the source distribution, unless it is there, and unpack its tests."""
    name = f"{suite.distribution}=={suite.version}"
    archives = sorted(place.glob(f"*{suite.version}.tar.gz"))
    if not archives:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:"]
        subprocess.run([*pip, "--no-deps", "--dest", str(place), name], check=True)
        archives = sorted(place.glob(f"*{suite.version}.tar.gz"))
    with tarfile.open(archives[0]) as archive:
        top = archive.getnames()[0].partition("/")[0]
        wanted = [one for one in archive if one.name.startswith(f"{top}/{suite.folder}/")]
        archive.extractall(place, wanted, filter="data")
    return place / top / suite.folder


def run_suite(name: str, suite: Suite, only: str, jobs: int) -> Iterator[Outcome]:
    """Run the files that fit the pattern `only`, each in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary, suite.start() as environment:
        folder = fetch(suite, Path(temporary))
        shared = {**os.environ, **environment, SUITE: name}
        shared["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(folder)))
        files = [one for one in sorted(folder.rglob("test_*.py")) if fnmatchcase(one.name, only)]
        with ThreadPoolExecutor(jobs) as pool:
            for outcomes in pool.map(lambda file: run_file(suite, folder, file, shared), files):
                yield from outcomes


def run_file(
    suite: Suite, folder: Path, file: Path, environment: Mapping[str, str]
) -> list[Outcome]:
    """All outcomes of a file; one more, a failure, when it could not be run to its end."""
    report = file.with_suffix(".report")
    marks = " or ".join([*suite.marks, *suite.other_marks])
    command = [sys.executable, "-m", "pytest", str(file.relative_to(folder)), "-m", marks, "-q"]
    command += ["-p", suite.preparer, "-p", "tests.conformance.reporting", "--tb=short"]
    command += ["-p", "no:cacheprovider", "--show-capture=no", f"--timeout={TEST_SECONDS}"]
    name = str(file.relative_to(folder))
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            env={**environment, REPORT: str(report)},
            capture_output=True,
            text=True,
            timeout=FILE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem = f"did not end in {FILE_SECONDS} s"
    else:
        problem = (
            "" if ended.returncode in (0, 1, 5) else ended.stdout[-2000:] + ended.stderr[-2000:]
        )
    lines = report.read_text().splitlines() if report.exists() else []
    outcomes = {one.test: one for one in (judge(suite, *json.loads(line)) for line in lines)}
    return [*outcomes.values(), *([Outcome(name, "failed", problem)] if problem else [])]


def judge(suite: Suite, test: str, ending: str, text: str) -> Outcome:
    """What an outcome that pytest reports means here."""
    if ending == "failed" and suite.refusal in text:
        return Outcome(test, "refused", text[text.rindex(suite.refusal) :].splitlines()[0])
    if ending == "skipped":
        return Outcome(test, "not applicable", f"the suite skips it: {text}")
    if ending == "deselected":
        return Outcome(test, "not applicable", text)
    return Outcome(test, ending, text)

"""Packages that others wrote, which tests run as they are.

`python tests/wire/packages.py` installs them outside of the work tree, once for each set of pins. A
test installs and downloads nothing: where there is no such folder or no such program it is not run,
and says why.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).parent
# Of what they say, errors alone. Python compiles what a test loads.
PIP = (sys.executable, "-m", "pip", "install", "-qq", "--no-compile")
NPM = ("npm", "install", "--loglevel=error")
TRIES = 3
INSTALL_SECONDS_MAX = 120.0
PAUSE_SECONDS = 2.0
CAUSE_MAX = 400


class NotInstalled(Exception):
    """Packages cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Packages:
    """What a file of pins names.

    `command` installs it into the folder where it runs, which holds a copy of that file.
    """

    kind: str
    pins: Path
    command: tuple[str, ...]
    tests: str

    @property
    def folder(self) -> Path:
        """Where they are once they are installed, whole, for what the file says now."""
        cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cached / f"tworegions-{self.kind}" / sha256(self.pins.read_bytes()).hexdigest()[:16]

    def install(self) -> None:
        """Install them beside the place that counts and move them there whole, or NotInstalled."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent) as scratch:
            work = Path(scratch) / "packages"
            work.mkdir()
            shutil.copy(self.pins, work)
            try:
                subprocess.run(
                    self.command,
                    cwd=work,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_SECONDS_MAX,
                    check=True,
                )
            except subprocess.TimeoutExpired as error:
                raise NotInstalled(f"it took longer than {INSTALL_SECONDS_MAX:.0f} s") from error
            except subprocess.CalledProcessError as error:
                # Its beginning has the cause; all of a build that failed would be no line.
                raise NotInstalled(" ".join(error.stderr.split())[:CAUSE_MAX]) from error
            try:
                work.rename(self.folder)
            except OSError:
                if not self.folder.exists():  # put there by another setup meanwhile
                    raise


PYTHON = Packages(
    "strangers",
    HERE / "strangers/requirements.txt",
    (*PIP, "--no-deps", "--target", ".", "-r", "requirements.txt"),
    "Celery, FastStream and LangGraph",
)
JAVASCRIPT = Packages(
    "javascript",
    HERE / "javascript/package.json",
    (*NPM, "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"),
    "JavaScript's SDKs and rhea",
)


def find_packages(packages: Packages) -> Path:
    """The folder of packages that are installed; otherwise the test is not run."""
    if not packages.folder.exists():
        name = packages.pins.relative_to(HERE)
        not_run(
            f"the packages of {name} are not installed: `python tests/wire/packages.py` does it"
        )
    return packages.folder


def find_program(name: str) -> str:
    """The path of a program that is installed; otherwise the test is not run."""
    path = shutil.which(name)
    if path is None:
        not_run(f"{name} is not installed")
    return path


def not_run(reason: str) -> NoReturn:
    """Skip the test, in CI as on a laptop: what is missing is a matter of the machine."""
    pytest.skip(f"not run: {reason}")


def install(packages: Packages) -> None:
    """Install packages in several tries; raises NotInstalled after the last."""
    for left in reversed(range(TRIES)):
        try:
            packages.install()
            return
        except NotInstalled:
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)


def main(every: tuple[Packages, ...] = (PYTHON, JAVASCRIPT)) -> None:
    """Install what is missing, and say which tests will not run where it cannot be had."""
    for packages in every:
        if packages.folder.exists() or shutil.which(packages.command[0]) is None:
            continue  # Of a program that is missing the setup has spoken.
        name = packages.pins.relative_to(HERE)
        say(f"installing the packages of {name}, which tests run")
        try:
            install(packages)
        except NotInstalled as reason:
            say(
                f"the packages of {name} cannot be had in {TRIES} tries, so tests of "
                f"{packages.tests} will not run: {reason}"
            )


def say(line: str) -> None:
    """Say it as a part of whatever sets the machine up."""
    sys.stderr.write(f"setup: {line}\n")


if __name__ == "__main__":
    main()

"""`python -m proof.bench.first_app`: from an empty folder to an own handler in two regions.

A stranger types `lockstep new app bank`. Every later command is one that an earlier one printed, as
it was printed; where it says NAME, a name is put. The time of each is printed.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local.testing.patience import eventually, run_patiently, until, wait_for_end
from proof.testbed.cloud import ROOT

LIMIT_SECONDS = 120.0
EFFECT = '{"total": 5, "messages": 1}'


@dataclass(slots=True)
class FirstApp:
    """A stranger with two terminals, who types what was printed; raises AssertionError."""

    folder: Path
    environment: Mapping[str, str]
    # What was printed last, and what `up` has printed so far.
    printed: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    commands: list[tuple[str, float]] = field(default_factory=list)

    def walk(self) -> None:
        """Go the whole way, and end what was started."""
        self.type_in("lockstep new app bank", is_first=True)
        self.type_in("cd bank")
        self.type_in("lockstep test")
        up = self.start_up("lockstep up --reload")
        try:
            self.send_and_see("bank")
            self.type_in("lockstep new handler NAME", name="payment")
            self.type_in("lockstep test")
            for region in self.find_regions():
                self.await_line(f"{region} runs the new code")
            self.send_and_see("payment")
        finally:
            up.send_signal(signal.SIGINT)
            wait_for_end(up, seconds=LIMIT_SECONDS)

    def type_in(self, command: str, *, name: str = "", is_first: bool = False) -> str:
        """Run a command that was printed; what it prints is what the next ones are taken from."""
        if not is_first:
            self.require_printed(command)
        began = time.monotonic()
        typed = command.replace("NAME", name)
        if typed.startswith("cd "):
            self.folder /= typed.removeprefix("cd ")
            self.commands.append((typed, 0.0))
            return ""
        ran = run_patiently(
            ["/bin/bash", "-c", typed],
            seconds=LIMIT_SECONDS,
            cwd=self.folder,
            env=self.environment,
        )
        if ran.returncode:
            raise AssertionError(f"{typed}: {ran.stdout}{ran.stderr}")
        self.commands.append((typed, time.monotonic() - began))
        if "  lockstep" in ran.stdout:
            self.printed = ran.stdout.splitlines()
        return ran.stdout

    def require_printed(self, command: str) -> None:
        if f"  {command}" not in self.printed + self.said:
            raise AssertionError(f"{command!r} was not printed, but {self.printed + self.said}")

    def start_up(self, command: str) -> subprocess.Popen[str]:
        """Start `up` in a second terminal, and wait until it says how it is reached."""
        self.require_printed(command)
        began = time.monotonic()
        up = subprocess.Popen(  # noqa: S603 - what was printed
            ["/bin/bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )

        def listen() -> None:
            if up.stdout is not None:
                self.said.extend(line.rstrip("\n") for line in up.stdout)

        threading.Thread(target=listen, daemon=True).start()
        self.await_line("Ctrl-C stops everything.")
        self.commands.append((command, time.monotonic() - began))
        return up

    def find_regions(self) -> list[str]:
        """Return the regions whose operations page `up` has named."""
        return [line.split()[0] for line in self.said if "/api/operate" in line]

    def await_line(self, line: str) -> None:
        until(lambda: line in self.said, seconds=LIMIT_SECONDS, what=f"{line!r}")

    def send_and_see(self, name: str) -> None:
        self.type_in(f"lockstep send {name}-1 {name}.add '{{\"amount\": 5}}'")
        began, show = time.monotonic(), f"lockstep show {name}-1"
        eventually(
            lambda: EFFECT in self.type_in(show),
            seconds=LIMIT_SECONDS,
            what=f"the effect of {name}",
        )
        looks = sum(command == show for command, _ in self.commands)
        self.commands[-looks:] = [(f"{show}, until the effect is there", time.monotonic() - began)]


def find_environment(programs: Path) -> dict[str, str]:
    """Return the environment of a shell in which `lockstep` is the command of this checkout."""
    command = programs / "lockstep"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli "$@"\n')
    command.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    packages = os.pathsep.join(
        (str(ROOT), str(ROOT / "emulator"), os.environ.get("PYTHONPATH", ""))
    )
    return kept | {"PATH": path, "PYTHONPATH": packages}


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m proof.bench.first_app", description=__doc__
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as programs:
        one = FirstApp(Path(folder), find_environment(Path(programs)))
        began = time.monotonic()
        one.walk()
        whole = time.monotonic() - began
    for command, seconds in one.commands:
        print(f"{seconds:6.1f} s  {command}")
    used = os.times()
    processor = used.children_user + used.children_system
    print(f"{whole:6.1f} s  in all, with the end of `up`; {processor:.1f} s of processor time")


if __name__ == "__main__":
    main()

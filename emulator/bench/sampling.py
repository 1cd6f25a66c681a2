"""Runs a command of `python -m local` and writes where its processor time went.

    python -m bench.sampling REPORT serve [options]

A timer rings as processor time passes, as often as the kernel allows, and what every thread is
doing is noted. Code outside Python counts for the function that called it, and for more than its
share: where it lets go of the interpreter it is looked at more easily.
"""

import signal
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path
from traceback import walk_stack
from types import FrameType

from local.__main__ import main

INTERVAL_SECONDS = 0.001
SWITCH_SECONDS = 1e-6  # or it would only be seen where it lets go of the interpreter by itself
IDLE = ("select", "wait", "serve")  # innermost functions of threads that only wait
TOP = 25
LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(Path.cwd()))

type Samples = Counter[tuple[str, str]]


class Sampler:
    """Counts samples by function: of those that ran, and of those that were under way."""

    def __init__(self) -> None:
        self.own: Samples = Counter()
        self.total: Samples = Counter()
        # The watching thread goes on while the report is written.
        self.counting = threading.Lock()

    def start(self) -> None:
        """Look at the threads that are there and at those to come, until the process ends."""
        sys.setswitchinterval(SWITCH_SECONDS)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})  # in every thread: it is awaited
        threading.Thread(target=self.watch, daemon=True).start()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def watch(self) -> None:
        while True:
            signal.sigwait({signal.SIGPROF})
            with self.counting:
                for thread, frame in sys._current_frames().items():
                    if thread != threading.get_ident() and frame.f_code.co_name not in IDLE:
                        self.own[name_function(frame)] += 1
                        self.total.update({name_function(one) for one, _ in walk_stack(frame)})

    def report(self) -> str:
        with self.counting:
            own, total = self.own.copy(), self.total.copy()
        count = max(own.total(), 1)
        packages: Counter[str] = Counter()
        for (path, _), hits in own.items():
            packages[find_package(path)] += hits
        lines = [f"{count} samples", "", "by package, own time:"]
        lines += [f"  {hits / count:6.1%}  {name}" for name, hits in packages.most_common()]
        for title, samples in (("own time", own), ("with all it calls", total)):
            lines += ["", f"by function, {title}:"]
            lines += [
                f"  {hits / count:6.1%}  {shorten_path(path)}:{name}"
                for (path, name), hits in samples.most_common(TOP)
            ]
        return "\n".join(lines)


def name_function(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename, frame.f_code.co_qualname


def find_package(path: str) -> str:
    """Return the package a file is part of; those of `local` two levels deep."""
    parts = Path(shorten_path(path)).parts
    return "/".join(parts[:2]) if parts[0] == "local" else parts[0]


def shorten_path(path: str) -> str:
    for library in LIBRARIES:
        if path.startswith(f"{library}/"):
            return path.removeprefix(f"{library}/")
    return path


if __name__ == "__main__":
    report, *words = sys.argv[1:]
    sampler = Sampler()
    sampler.start()
    status = main(words)
    Path(report).write_text(sampler.report())
    sys.exit(status)

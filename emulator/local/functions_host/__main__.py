"""`python -m local.functions_host`: one Functions host process, for one region.

On stdout it prints one line of JSON when every listener runs, and nothing else, ever; logs go to
stderr, one JSON object a line. It ends on SIGTERM, SIGINT, or when its stdin reaches its end.

The host and the app's worker are one process here. When the worker is lost, because a function ran
past the timeout, the host fails what else was under way, stops, and becomes a new program in the
same process, on the same port: so nothing of the app lives on.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import stat
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import NoReturn, TextIO
from urllib.parse import urlsplit

from local.functions_host.config import host_json
from local.functions_host.config.settings import AppSettings, Unsupported
from local.functions_host.host import FunctionsHost
from local.functions_host.worker import logs

log = logging.getLogger(__name__)

RESTARTED = "--restarted"  # the one line on stdout was printed before
LOOK_SECONDS, BLOCKED_SECONDS = 0.5, 2.0
LEVELS = ("debug", "info", "warning", "error")


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m local.functions_host",
        description="Runs an unmodified Azure Functions app (Python, function_app.py) on loopback.",
        epilog="Functions that need a key take 'lockstep-local', as x-functions-key or ?code=.",
    )
    parser.add_argument("--app", type=Path, required=True, help="directory of function_app.py")
    parser.add_argument("--port", type=int, default=0, help="HTTP port; 0 takes a free one")
    parser.add_argument("--region", required=True, help="name of the region, for logs and status")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="least level logged")
    parser.add_argument(RESTARTED, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """The way in which this program was started; the app may change all of it."""

    command: list[str]
    directory: Path
    environment: Mapping[str, str]

    @classmethod
    def read(cls) -> "ProgramStart":
        return cls([sys.executable, *sys.orig_argv[1:]], Path.cwd(), dict(os.environ))

    def again(self, url: str) -> NoReturn:
        """Become the same program on the port of a URL; every thread ends, every file closes."""
        logging.shutdown()
        os.chdir(self.directory)
        port = str(urlsplit(url).port)
        command = [*self.command, "--port", port, RESTARTED]
        os.execve(sys.executable, command, self.environment)  # noqa: S606 - our own command


def take_stdout() -> TextIO:
    """Keep stdout for the one line; whatever else writes there lands on stderr."""
    announcements = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return announcements


def watch_for_end(stopping: asyncio.Event) -> None:
    """Set the event on SIGTERM, SIGINT, and at the end of stdin where that can be waited for.

    A file or the null device on stdin says nothing about a supervisor and is not watched.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if is_watchable(0):
        loop.add_reader(0, read_stdin, stopping)


def is_watchable(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


def read_stdin(stopping: asyncio.Event) -> None:
    """Discard what comes in; at its end, stop."""
    if not os.read(0, 65536):
        asyncio.get_running_loop().remove_reader(0)
        stopping.set()


async def serve(options: argparse.Namespace, level: int, announcements: TextIO) -> int:
    began, stopping = ProgramStart.read(), asyncio.Event()
    watch_for_end(stopping)
    app = options.app.resolve()
    try:
        settings = AppSettings.load(app, os.environ)
        limits = host_json.load(app, settings.values)
        logs.configure(options.region, level, limits.log_levels, sys.stderr)
        os.environ.update(settings.values)
        host = await FunctionsHost.load(app, options.port, options.region, settings, limits)
        url = await host.start()
    except (Unsupported, OSError) as error:
        log.error("%s", error)
        return 1
    if not options.restarted:
        ready = {"url": url, "pid": os.getpid(), "functions": host.functions}
        print(json.dumps(ready), file=announcements, flush=True)
    Thread(target=end_blocked_loop, args=(host, began, url), daemon=True).start()
    ends = [asyncio.create_task(event.wait()) for event in (stopping, host.worker_lost)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await host.stop()
    if not stopping.is_set():
        log.warning("the worker was lost: the host starts anew")
        began.again(url)
    return 0


def end_blocked_loop(host: FunctionsHost, began: ProgramStart, url: str) -> None:
    """Start anew when the app blocks the event loop past the timeout; nothing can be settled then.

    The real host is a process of its own, which the app cannot block.
    """
    while host.late_seconds() < BLOCKED_SECONDS:
        time.sleep(LOOK_SECONDS)
    log.error("a function blocks the event loop past the timeout: the host starts anew")
    began.again(url)


def main() -> NoReturn:
    """Parse, serve, and end the process; a sync function that still runs cannot hold it."""
    options = parse_arguments(sys.argv[1:])
    announcements = take_stdout()
    level = logging.getLevelNamesMapping()[options.log_level.upper()]
    logs.configure(options.region, level, {}, sys.stderr)
    status = asyncio.run(serve(options, level, announcements))
    logging.shutdown()
    os._exit(status)


if __name__ == "__main__":
    main()

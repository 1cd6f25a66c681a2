"""`python -m local.functions_host`: one Functions host process, for one region.

On stdout it prints one line of JSON when every listener runs, and nothing else, ever; logs go to
stderr, one JSON object a line. It ends on SIGTERM, SIGINT, or when its stdin reaches its end.

The app's functions run in a worker's process beside it. When that has died three times, the host
ends with a status of its own, and whoever started it is to start it again, as the platform does.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import stat
import sys
from pathlib import Path
from typing import NoReturn, TextIO

from local.functions_host.config import host_json
from local.functions_host.config.settings import AppSettings, Unsupported
from local.functions_host.host import FunctionsHost
from local.functions_host.worker import logs
from local.hosts import RECYCLED

log = logging.getLogger(__name__)

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
    return parser.parse_args(words)


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
    stopping = asyncio.Event()
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
    ready = {"url": url, "pid": os.getpid(), "functions": host.functions}
    print(json.dumps(ready), file=announcements, flush=True)
    ends = [asyncio.create_task(event.wait()) for event in (stopping, host.worker_exhausted)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await host.stop()
    return 0 if stopping.is_set() else RECYCLED


def main() -> NoReturn:
    """Parse, serve, and end the process."""
    options = parse_arguments(sys.argv[1:])
    announcements = take_stdout()
    level = logging.getLevelNamesMapping()[options.log_level.upper()]
    logs.configure(options.region, level, {}, sys.stderr)
    status = asyncio.run(serve(options, level, announcements))
    logging.shutdown()
    os._exit(status)


if __name__ == "__main__":
    main()

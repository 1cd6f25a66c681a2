"""`python -m local.functions_host.worker`: the process in which an app's functions run.

The host starts it and speaks with it over a socket. It ends with the host, whatever the app does:
a thread of its own waits for the end of a pipe that the host alone holds open.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from threading import Thread
from typing import NoReturn

from local.functions_host.config import host_json
from local.functions_host.config.settings import Unsupported
from local.functions_host.worker import frames, logs, worker
from local.functions_host.worker.invocations import (
    Answer,
    Invocation,
    WorkerReady,
    WorkerRefused,
)

log = logging.getLogger(__name__)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local.functions_host.worker")
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--level", type=int, required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--lifeline", type=int, required=True)
    return parser.parse_args()


def end_with_host(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


async def work(app: Path, channel: int) -> None:
    """Run what the host asks for, side by side, until it asks for nothing more."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=channel))
    try:
        frames.write(writer, WorkerReady(await worker.load(app)))
    except Unsupported as error:
        frames.write(writer, WorkerRefused(str(error)))
    running: set[asyncio.Task[None]] = set()

    async def run(invocation: Invocation) -> None:
        frames.write(writer, Answer(invocation.id, await worker.invoke(invocation)))

    def end(task: asyncio.Task[None]) -> None:
        running.discard(task)
        # Nothing is answered, so the host waits until the function's time is up.
        if task.cancelled():
            log.error("a function was cancelled by itself: it has no answer")
        elif error := task.exception():
            log.error("a function raised what is no Exception: it has no answer", exc_info=error)

    while invocation := await frames.read(reader):
        task = asyncio.create_task(run(invocation))
        running.add(task)
        task.add_done_callback(end)


def main() -> NoReturn:
    """Serve the host, and end the process; a sync function that still runs cannot hold it."""
    options = parse_arguments()
    # What ends the host from a terminal must not end the worker before it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_host, args=(options.lifeline,), daemon=True).start()
    levels = host_json.load(options.app, os.environ).log_levels
    logs.configure(options.region, options.level, levels, sys.stderr)
    asyncio.run(work(options.app, options.channel))
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()

"""An HTTP service on 127.0.0.1 with an event loop in a thread of its own.

The parts of the local cloud are started and stopped from ordinary blocking code (a test, a signal
handler), whatever loop that code may or may not run.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from threading import Thread
from typing import Any

from aiohttp import web

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 0.5
CLOSING_TURNS = 3  # turns of the loop in which closed connections take leave of their server

type Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class PortTaken(OSError):
    """A port that was asked for cannot be bound."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(f"port {port} for {name} cannot be bound")


class LoopbackService:
    """Serves one handler from `start` until `stop`; nothing but this machine can reach it.

    It may be started again after it was stopped, and keeps its port.
    """

    def __init__(self, name: str, *, port: int = 0) -> None:
        self._name = name
        self._port = port
        self._thread: LoopThread | None = None
        self._runner: web.ServerRunner

    @property
    def port(self) -> int:
        """The port it listens on; known once started."""
        return self._port

    def start(self, handler: Handler) -> None:
        """Listen; raises PortTaken when the port cannot be had. Returns when it is reachable."""
        thread = LoopThread(self._name)
        try:
            self._runner = thread.run(self._listen(handler))
        except BaseException:
            thread.end()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Close every connection and end the thread; a second call does nothing."""
        if self._thread is not None:
            self._thread.run(self._close())
            self._thread.end()
            self._thread = None

    async def _listen(self, handler: Handler) -> web.ServerRunner:
        server = web.Server(handler, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, HOST, self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise PortTaken(self._port, self._name) from error
        self._port = runner.addresses[0][1]
        return runner

    async def _close(self) -> None:
        await self._runner.cleanup()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)


class LoopThread:
    """An event loop that runs in a thread until `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end on the loop, while the calling thread waits."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def end(self) -> None:
        """Stop the loop and join the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def check_free(port: int, name: str) -> None:
    """Raise PortTaken when a port cannot be bound now; port 0 always can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortTaken(port, name) from error

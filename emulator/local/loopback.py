"""HTTP services on 127.0.0.1 with an event loop in a thread of its own, and ports held for later.

The parts of the local cloud are started and stopped from ordinary blocking code (a test, a signal
handler), whatever loop that code may or may not run.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

from aiohttp import web

HOST = "127.0.0.1"
# How a client on this machine may name it.
LOOPBACK_NAMES = (HOST, "localhost", "[::1]")
SHUTDOWN_SECONDS = 0.5
LOOP_PASSES = 3  # in which connections register with their server, or leave it

type HttpHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class PortTaken(OSError):
    """A port that was asked for cannot be bound."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(f"port {port} for {name} cannot be bound")


class LoopbackService:
    """Serves one handler from `start` until `stop`; nothing but this machine can reach it.

    What names another host, or comes from a page of another origin, gets 403.

    It may be started again after it was stopped, and keeps its `ports`, in the order in which they
    were asked for. All of them are served on the same thread.
    """

    def __init__(self, name: str, *, port: int = 0, more_ports: Sequence[int] = ()) -> None:
        self._name = name
        self.ports = [port, *more_ports]
        self._thread: LoopThread | None = None
        self._listeners: list[socket.socket] = []
        self._runner: web.ServerRunner

    def start(self, handler: HttpHandler) -> None:
        """Listen; raises PortTaken when a port cannot be had. Returns when it is reachable."""
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

    def call[T](self, work: Callable[[], T]) -> T:
        """Do something on the thread that serves, between requests; only while started."""
        if self._thread is None:
            raise RuntimeError(f"{self._name} is not running")

        async def run() -> T:
            return work()

        return self._thread.run(run())

    async def _listen(self, handler: HttpHandler) -> web.ServerRunner:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return refuse_foreign() if is_foreign(request) else await handler(request)

        server = web.Server(answer, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        self._listeners = []
        for port in self.ports:
            try:
                listener = socket.create_server((HOST, port))
            except OSError as error:
                await runner.cleanup()
                raise PortTaken(port, self._name) from error
            await web.SockSite(runner, listener).start()
            self._listeners.append(listener)
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        return runner

    async def _close(self) -> None:
        # What is being accepted needs its server for a moment: close that only afterwards.
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
        await run_pending()
        await self._runner.cleanup()
        await run_pending()


def is_foreign(request: web.BaseRequest) -> bool:
    """Return whether a request names another machine, or comes from a page of another origin.

    A browser lets any page send requests to ports of its own machine, and a page can let its own
    name lead there. Its requests say so: by the host they name, or by the origin of the page.
    """
    if request.transport is None:
        return True
    port = request.transport.get_extra_info("sockname")[1]
    here = {f"{name}:{port}" for name in LOOPBACK_NAMES}
    origin = request.headers.get("Origin")
    is_same_origin = origin is None or origin.removeprefix("http://") in here
    return request.headers.get("Host", "").lower() not in here or not is_same_origin


def refuse_foreign() -> web.Response:
    reason = "only clients on this machine, by a loopback name and port, and no pages of elsewhere"
    return web.json_response({"error": reason}, status=403)


async def run_pending() -> None:
    for _ in range(LOOP_PASSES):
        await asyncio.sleep(0)


async def cancel_others() -> None:
    """Cancel all other tasks of this loop, such as answers whose client is gone."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class LoopThread:
    """An event loop that runs in a thread until `end`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end on the loop, while the calling thread waits."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def end(self) -> None:
        """End the thread, and cancel what still waits on its loop."""
        self.run(cancel_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextmanager
def held_port(port: int, name: str, host: str = HOST) -> Iterator[int]:
    """Hold a port, 0 for any that is free, for a process that does not listen on it all the time.

    Meanwhile the system gives it to nobody who did not ask for its number, such as clients for
    their own ends. Raises PortTaken. Only Linux lets two sockets share a port; elsewhere it is not
    held.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((host, port))
        except OSError as error:
            raise PortTaken(port, name) from error
        if sys.platform == "linux":
            yield holder.getsockname()[1]
            return
    yield port

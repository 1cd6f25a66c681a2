"""Durable Functions' storage on one machine: durabletask's in-memory backend over gRPC."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from durabletask.internal import orchestrator_service_pb2_grpc as stubs

from local.counters import Counters
from local.durable.hub import LeasingTaskHub
from local.durable.service import COMPONENT, CallInterceptor, TaskHubService, target_of
from local.durable.timing import Timers
from local.faults import Faults, Target
from local.loopback import HOST, LoopThread, PortTaken

LEASE_SECONDS = 300.0
THREADS = 8
STOP_SECONDS = 0.2
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A worker that is stopped but not dead keeps its connection and answers no ping.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.ping_timeout_ms", 2000),
)


class DurableBackend:
    """A region's task hub on 127.0.0.1, never beyond; its state is in memory and ends with `stop`.

    An item that a worker took comes back when the worker's connection breaks, when it answers no
    ping for about four seconds, or after `lease_seconds`, whichever is first.
    """

    def __init__(
        self,
        region: str,
        *,
        port: int = 0,
        faults: Faults | None = None,
        counters: Counters | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._component = f"{COMPONENT}.{region}"
        self._port = port
        self._faults = faults or Faults()
        self._interceptor = CallInterceptor(self._component, self._faults, counters or Counters())
        self._lease_seconds = lease_seconds
        self._running = ExitStack()
        self._server: grpc.aio.Server | None = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def address(self) -> str:
        return f"{HOST}:{self._port}"

    def targets(self) -> list[Target]:
        return [target_of(self._component)]

    def start(self) -> None:
        """Listen; raises PortTaken when the port cannot be had."""
        with ExitStack() as starting:
            thread = LoopThread(self._component)
            timers = Timers(thread.loop)
            starting.callback(timers.close)  # after the loop's end, which sets off no more of them
            starting.callback(thread.end)
            threads = ThreadPoolExecutor(THREADS, thread_name_prefix=self._component)
            starting.callback(threads.shutdown)
            server, service = thread.run(self._listen(timers, threads))
            self._server = server
            starting.callback(lambda: thread.run(server.stop(STOP_SECONDS)))
            starting.callback(self._faults.watch(service.on_fault))
            self._running = starting.pop_all()

    def stop(self) -> None:
        """Cut off every call and end the threads; a second call does nothing."""
        self._running.close()
        self._server = None  # not before the loop has ended: its sockets go with it

    async def _listen(
        self, timers: Timers, threads: ThreadPoolExecutor
    ) -> tuple[grpc.aio.Server, TaskHubService]:
        server = grpc.aio.server(threads, options=OPTIONS)
        service = TaskHubService(self._interceptor, threads)
        hub = LeasingTaskHub(self._lease_seconds, timers, service.on_work, service.on_change)
        service.serve(hub)
        stubs.add_TaskHubSidecarServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
        try:
            self._port = server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise PortTaken(self._port, self._component) from error
        await server.start()
        return server, service

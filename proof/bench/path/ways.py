"""The ways that are recorded: a message, a saga's step, and a send in the local broker.

Everything runs for real: the engine over azure-cosmos and azure-servicebus, against the local cloud
in this process. Each way is taken twice before it is recorded, so that connecting, and what is done
for the first message of a session only, do not count.

`sys.monitoring` (PEP 669) reports the start of every function once: a coroutine starts once,
however often it is resumed, so a message is counted alike however long its awaits take.
"""

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import azure.functions as func
from azure.functions.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cli.regions import CONFIG
from functions.handlers import orders, tracking
from functions.triggers.receive import build_receive_blueprint
from local.cloud import Cloud, CloudOptions
from local.config import load_config
from proof.bench.load import make_status, to_sdk_message
from proof.testbed.cloud import ROOT
from shared.domain import wire
from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.sagas.sagas import Sagas
from shared.settings import Settings
from shared.wiring import Adapters, connect

PRODUCT = ("functions", "shared")
BROKER = ("emulator/local",)
WARM_UPS = 2
# A way is recorded so many times.
TIMES = 12
# A send is short, and on a busy machine what runs by the clock falls into many of them in a row.
SENDS = 100

MONITORING = sys.monitoring
TOOL = MONITORING.PROFILER_ID
# Called as soon as the store has the entry.
COMMITTED = "Worker.remember_head"
# A comprehension or a lambda is read with the function it stands in.
ANONYMOUS = ("<genexpr>", "<lambda>", "<module>")


@dataclass(slots=True)
class RecordedPath:
    """The functions that ran, in order, as (file, name), and how deeply each was nested."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)

    @property
    def depth(self) -> int:
        return max(self.depths)

    @property
    def functions(self) -> int:
        return len(set(self.calls))

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _ in self.calls))

    def until(self, name: str) -> "RecordedPath":
        """Return the part before the first call of the function with this name."""
        end = [called for _, called in self.calls].index(name)
        return RecordedPath(self.calls[:end], self.depths[:end])

    @property
    def changes(self) -> int:
        files = [file for file, _ in self.calls]
        return sum(one != other for one, other in pairwise(files))


@contextmanager
def recording(folders: Sequence[str]) -> Iterator[RecordedPath]:
    """Record the functions that stand in these folders of the repository, in every thread."""
    places = tuple(f"{ROOT}/{folder}/" for folder in folders)
    path = RecordedPath()

    def note_start(code: CodeType, _: int) -> object:
        if not code.co_filename.startswith(places) or code.co_name in ANONYMOUS:
            return MONITORING.DISABLE
        file = str(Path(code.co_filename).relative_to(ROOT))
        path.calls.append((file, code.co_qualname))
        caller = sys._getframe(1)  # the frame that starts; there is no public way to it from here
        path.depths.append(measure_depth(caller, places))
        return None

    MONITORING.use_tool_id(TOOL, "proof.bench.path")
    MONITORING.register_callback(TOOL, MONITORING.events.PY_START, note_start)
    MONITORING.set_events(TOOL, MONITORING.events.PY_START)
    try:
        yield path
    finally:
        MONITORING.set_events(TOOL, 0)
        MONITORING.register_callback(TOOL, MONITORING.events.PY_START, None)
        MONITORING.free_tool_id(TOOL)
        MONITORING.restart_events()


def measure_depth(frame: FrameType | None, places: tuple[str, ...]) -> int:
    depth = 0
    while frame is not None:
        code = frame.f_code
        depth += code.co_filename.startswith(places) and code.co_name not in ANONYMOUS
        frame = frame.f_back
    return depth


async def record_ways() -> dict[str, RecordedPath]:
    async with running_worker() as (services, cloud):
        return {
            "pure message": await record_message(services),
            "saga step": await record_step(services),
            "send in the local broker": await record_send(cloud),
        }


@asynccontextmanager
async def running_worker() -> AsyncIterator[tuple[Services, Cloud]]:
    """Run a worker of the first region over a local cloud without hosts."""
    handlers = Handlers.joined([tracking.handlers, orders.handlers])
    with (
        tempfile.TemporaryDirectory(prefix="bench-path-") as logs,
        Cloud(load_config(CONFIG), CloudOptions(logs=Path(logs))) as cloud,
    ):
        regions = list(cloud.namespaces)
        settings = Settings.read(
            {
                "LOCKSTEP_REGION": regions[0],
                "LOCKSTEP_REGIONS": ",".join(regions),
                "Cosmos": cloud.cosmos.connection_string,
            }
            | {f"ServiceBus_{n}": one.connection_string for n, one in cloud.namespaces.items()}
        )
        adapters = Adapters.of(settings)
        try:
            services = connect(settings, handlers, adapters)
            # As one that has run for a while: after its start a worker is careful with commands.
            services.worker.careful_until = 0.0
            yield services, cloud
        finally:
            await adapters.close()


async def record_message(services: Services) -> RecordedPath:
    """Record a numbered message for a pure handler, from the trigger's function to the commit."""
    app = func.FunctionApp()
    app.register_functions(build_receive_blueprint(services))
    (trigger,) = app.get_functions()
    receive = trigger.get_user_function()
    for number in range(WARM_UPS):
        await receive(to_delivery(make_status("N1", number)))
    paths: list[RecordedPath] = []
    for number in range(WARM_UPS, WARM_UPS + TIMES):
        delivery = to_delivery(make_status("N1", number))
        with recording(PRODUCT) as path:
            await receive(delivery)
        paths.append(path.until(COMMITTED))
    return keep_common(paths)


def to_delivery(message: Message) -> ServiceBusMessage:
    """Return a message as the host hands it to the trigger."""
    return ServiceBusMessage(
        body=message.body,
        application_properties=wire.to_properties(message),
        message_id=message.id,
        session_id=message.session,
        user_properties={},
    )


async def record_step(services: Services) -> RecordedPath:
    """Record a saga's step in a session that this worker knows, from the activity to its reply."""
    steps = Sagas(services.consumer).steps

    def work(number: int) -> dict[str, object]:
        command = {"session": "stock:p", "type": "stock.receive", "body": {"quantity": 1}}
        return {
            "key": "bench",
            "at": datetime.now(UTC).isoformat(),
            "step": {"name": f"step-{number}", "do": command},
            "direction": "do",
        }

    for number in range(WARM_UPS):
        await steps.perform(work(number))
    paths: list[RecordedPath] = []
    for number in range(WARM_UPS, WARM_UPS + TIMES):
        with recording(PRODUCT) as path:
            await steps.perform(work(number))
        paths.append(path)
    return keep_common(paths)


async def record_send(cloud: Cloud) -> RecordedPath:
    """Record what the broker does with a message on an open link, until the outcome is sent."""
    connection = next(iter(cloud.namespaces.values())).connection_string
    async with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender("lockstep") as sender,
    ):
        paths: list[RecordedPath] = []
        for number in range(WARM_UPS + SENDS):
            message = to_sdk_message(make_status("N2", number))
            with recording(BROKER) as path:
                await sender.send_messages(message)
            paths.append(path)
    return keep_common(paths[WARM_UPS:])


def keep_common(paths: Sequence[RecordedPath]) -> RecordedPath:
    """Return the shortest of the paths, without the functions that not all of them have.

    Every thread and task is recorded. So what runs by the clock, or is left of an earlier message,
    may fall into a path, above all where the machine is busy, though not into all. A busy thread is
    sometimes recorded too late: then there is nothing in its path.
    """
    recorded = [path for path in paths if path.calls]
    shortest = min(recorded, key=lambda path: len(path.calls))
    common = set.intersection(*(set(path.calls) for path in recorded))
    kept = [
        (call, depth)
        for call, depth in zip(shortest.calls, shortest.depths, strict=True)
        if call in common
    ]
    return RecordedPath([call for call, _ in kept], [depth for _, depth in kept])

"""The timer trigger: an occurrence during a run is skipped, one during an outage is made up once.

The real host keeps the status of a timer in a storage account. This one keeps it below the
directory in the setting `LOCAL_HOST_DATA`; without that setting nothing outlives the process, and
no run is ever past due.
"""

import asyncio
import json
import logging
from datetime import datetime
from pathlib import Path

from local.functions_host.function import Function
from local.functions_host.protos import TypedData
from local.functions_host.refusal import Refused
from local.functions_host.triggers.attempts import Attempts
from local.functions_host.triggers.listener import HostContext
from local.functions_host.triggers.schedule import Schedule, now
from local.functions_host.triggers.schedule_monitor import ScheduleMonitor

log = logging.getLogger(__name__)

DATA_SETTING = "LOCAL_HOST_DATA"


class TimerListener:
    """Invokes one function at each occurrence of its schedule."""

    def __init__(self, function: Function, context: HostContext) -> None:
        binding = function.trigger
        binding.only("schedule", "runOnStartup", "useMonitor")
        self._function = function
        self._attempts = Attempts(function, context.worker)
        self._schedule = schedule_of(function)
        self._runs_on_startup = binding.flag("runOnStartup", False)
        is_monitored = binding.flag("useMonitor", True) and self._schedule.is_monitored(now())
        self._monitor = monitor_of(function, self._schedule, context) if is_monitored else None
        self._clock: asyncio.Task[None] | None = None
        self._running = asyncio.Lock()

    async def start(self) -> None:
        """Begin to wait for the next occurrence."""
        is_past_due = self._monitor is not None and self._monitor.begin(now())
        self._clock = asyncio.create_task(self._tick(is_past_due))

    async def stop(self, drain_seconds: float) -> None:
        """Wait for a run in progress up to the limit, then stop the clock."""
        self._attempts.stop()
        try:
            async with asyncio.timeout(drain_seconds), self._running:
                pass
        except TimeoutError:
            log.warning("still running: cut off", extra={"function": self._function.name})
        if self._clock is not None:
            self._clock.cancel()
            await asyncio.gather(self._clock, return_exceptions=True)

    async def run_now(self, text: str) -> None:  # noqa: ARG002 - a timer takes no input
        """Invoke the function once, apart from its schedule."""
        await self._invoke()

    async def _tick(self, is_past_due: bool) -> None:
        due = now()
        if is_past_due or self._runs_on_startup:
            await self._invoke(is_past_due=is_past_due)
            self._note(due)
        while True:
            due = self._schedule.after(max(now(), due))  # the sleep may end a little early
            await asyncio.sleep((due - now()).total_seconds())
            await self._invoke()
            self._note(due)

    async def _invoke(self, *, is_past_due: bool = False) -> None:
        async with self._running:
            document = {
                "Schedule": {"AdjustForDST": True},
                "ScheduleStatus": self._monitor.document() if self._monitor else None,
                "IsPastDue": is_past_due,
            }
            data = TypedData(json=json.dumps(document))
            await self._attempts.run({self._function.trigger.name: data})

    def _note(self, due: datetime) -> None:
        if self._monitor is None:
            return
        try:
            self._monitor.ran(due)
        except OSError as error:
            log.error("not kept: %s", error, extra={"function": self._function.name})


def schedule_of(function: Function) -> Schedule:
    """Read the binding's schedule or refuse it."""
    try:
        return Schedule.parse(function.trigger.text("schedule"))
    except ValueError as error:
        raise Refused(f"function {function.name}: {error}") from error


def monitor_of(function: Function, schedule: Schedule, context: HostContext) -> ScheduleMonitor:
    """Make the monitor; each region and function has a file of its own."""
    directory = context.settings.values.get(DATA_SETTING)
    if not directory:
        return ScheduleMonitor(schedule, None)
    path = Path(directory) / "timers" / context.region / f"{function.name}.json"
    return ScheduleMonitor(schedule, path)

"""The timer trigger: NCRONTAB with seconds, in UTC, missed occurrences skipped.

The real host keeps the last run in a storage account and marks a first run after an outage as past
due. This host keeps nothing over a restart, so no run is ever past due.
"""

import asyncio
import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import croniter

from local.functions_host.function import Function
from local.functions_host.protos import TypedData
from local.functions_host.refusal import Refused
from local.functions_host.triggers.invocation import report
from local.functions_host.triggers.listener import HostContext

log = logging.getLogger(__name__)

MONITORED_INTERVAL = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Six fields: second, minute, hour, day, month, day of week."""

    expression: str

    @classmethod
    def parse(cls, expression: str) -> "Schedule":
        """Read a schedule; anything but six valid fields raises ValueError."""
        if len(expression.split()) != 6:
            raise ValueError(f"schedule {expression!r}: six fields are needed, seconds first")
        if not croniter.is_valid(expression, second_at_beginning=True):
            raise ValueError(f"schedule {expression!r} is not NCRONTAB")
        return cls(expression)

    def after(self, moment: datetime) -> datetime:
        """The first occurrence later than the moment."""
        steps = croniter(self.expression, moment, second_at_beginning=True)
        occurrence: datetime = steps.get_next(datetime)
        return occurrence

    def is_monitored(self, moment: datetime) -> bool:
        """Whether the real host would keep the status: not below a minute between occurrences."""
        first = self.after(moment)
        return self.after(first) - first >= MONITORED_INTERVAL


class TimerListener:
    """Invokes one function at each occurrence; an occurrence during a run is skipped."""

    def __init__(self, function: Function, context: HostContext) -> None:
        binding = function.trigger
        binding.only("schedule", "runOnStartup", "useMonitor")
        self._function = function
        self._worker = context.worker
        self._schedule = schedule_of(function)
        self._runs_on_startup = binding.flag("runOnStartup", False)
        self._monitored = binding.flag("useMonitor", True) and self._schedule.is_monitored(now())
        self._last: datetime | None = None
        self._clock: asyncio.Task[None] | None = None
        self._running = asyncio.Lock()

    async def start(self) -> None:
        """Begin to wait for the next occurrence."""
        self._clock = asyncio.create_task(self._tick())

    async def stop(self, drain_seconds: float) -> None:
        """Wait for a run in progress up to the limit, then stop the clock."""
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

    async def _tick(self) -> None:
        if self._runs_on_startup:
            await self._invoke()
        due = now()
        while True:
            due = self._schedule.after(max(now(), due))  # the sleep may end a little early
            await asyncio.sleep((due - now()).total_seconds())
            await self._invoke()
            self._last = due

    async def _invoke(self) -> None:
        function = self._function
        async with self._running:
            inputs = {function.trigger.name: TypedData(json=json.dumps(self._payload()))}
            report(function.name, await self._worker.invoke(function.id, function.name, inputs))

    def _payload(self) -> dict[str, object]:
        return {
            "Schedule": {"AdjustForDST": True},
            "ScheduleStatus": self._status() if self._monitored else None,
            "IsPastDue": False,
        }

    def _status(self) -> dict[str, str]:
        never = "0001-01-01T00:00:00+00:00"
        last = self._last.isoformat() if self._last else never
        return {"Last": last, "LastUpdated": last, "Next": self._schedule.after(now()).isoformat()}


def schedule_of(function: Function) -> Schedule:
    """Read the binding's schedule or refuse it."""
    try:
        return Schedule.parse(function.trigger.text("schedule"))
    except ValueError as error:
        raise Refused(f"function {function.name}: {error}") from error


def now() -> datetime:
    """The time on the wall, in UTC."""
    return datetime.now(UTC)

"""The timer trigger: an occurrence during a run is skipped, one during an outage is made up once.

The real host keeps the status of a timer in a storage account, and a lock beside it. This one keeps
both below the directory in the setting `LOCAL_HOST_DATA`; without that setting nothing outlives the
process: no run is ever past due, and a timer waits for no killed host.
"""

import asyncio
import json
import logging
import math
import os
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from croniter import CroniterBadDateError, croniter

from local.functions_host.config.functions import AppFunction
from local.functions_host.config.host_json import parse_timespan
from local.functions_host.config.settings import Unsupported
from local.functions_host.protos import TypedData
from local.functions_host.triggers.listener import HostContext, Listener, RetryingInvoker
from local.functions_host.triggers.timer_lock import TimerLock

log = logging.getLogger(__name__)

DATA_SETTING = "LOCAL_HOST_DATA"
MONITORED_INTERVAL = timedelta(minutes=1)
NEVER = datetime(1, 1, 1, tzinfo=UTC)
# What NCRONTAB allows in a field is less than what croniter does.
CRON_ITEM = r"(?:\*|(?:\d+|[A-Za-z]{3,9})(?:-(?:\d+|[A-Za-z]{3,9}))?)(?:/\d+)?"
CRON_FIELD = re.compile(rf"{CRON_ITEM}(?:,{CRON_ITEM})*", re.ASCII)
EIGHTH_DAY = re.compile(r"(?:^|[,-])7")


class TimerListener(Listener):
    def __init__(self, function: AppFunction, context: HostContext) -> None:
        binding = function.trigger
        binding.only("schedule", "runOnStartup", "useMonitor")
        self._function = function
        self._invoker = RetryingInvoker(function, context.worker)
        try:
            self._schedule = TimerSchedule.parse(binding.text("schedule"))
        except ValueError as error:
            raise Unsupported(f"function {function.name}: {error}") from error
        self._runs_on_startup = binding.flag("runOnStartup", False)
        directory = context.settings.values.get(DATA_SETTING)
        file = Path("timers", context.region, f"{function.name}.json")
        path = Path(directory) / file if directory else None
        self._monitor: ScheduleMonitor | None = None
        if binding.flag("useMonitor", True) and self._schedule.is_monitored(now()):
            self._monitor = ScheduleMonitor(self._schedule, path)
        self._singleton = context.limits.singleton
        self._lock = TimerLock(path and path.with_suffix(".lock"), str(uuid.uuid4()))
        self._keeping: asyncio.Task[None] | None = None
        self._clock: asyncio.Task[None] | None = None
        self._running = asyncio.Lock()

    async def start(self) -> None:
        """Follow the schedule, if no other host of the region does; else wait to take over."""
        if self._lock.take(now(), self._singleton.listener_lock_seconds):
            self._begin()
        self._keeping = asyncio.create_task(self._keep_lock())

    async def stop(self, drain_seconds: float) -> None:
        """Wait for a run in progress up to the limit, stop the clock, and give the lock back."""
        self._invoker.stop()
        try:
            async with asyncio.timeout(drain_seconds), self._running:
                pass
        except TimeoutError:
            log.warning("still running: cut off", extra={"function": self._function.name})
        tasks = [task for task in (self._keeping, self._clock) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._clock is not None:
            self._lock.give_back(now())

    async def run_now(self, text: str) -> None:  # noqa: ARG002 - a timer takes no input
        await self._invoke()

    def _begin(self) -> None:
        is_past_due = self._monitor is not None and self._monitor.begin(now())
        self._clock = asyncio.create_task(self._follow_schedule(is_past_due))

    async def _keep_lock(self) -> None:
        """Renew the lock, or look again and again whether it is free."""
        singleton, extra = self._singleton, {"function": self._function.name}
        while True:
            # The real host renews after half of the period.
            renew_seconds = singleton.listener_lock_seconds / 2
            await asyncio.sleep(renew_seconds if self._clock else singleton.recovery_seconds)
            try:
                is_held = self._lock.take(now(), singleton.listener_lock_seconds)
                if is_held and self._clock is None:
                    log.info("took the timer over", extra=extra)
                    self._begin()
            except OSError as error:
                log.error("the lock cannot be kept: %s", error, extra=extra)
                continue
            if not is_held and self._clock is not None:
                log.warning("the timer went to another host", extra=extra)
                self._clock.cancel()
                self._clock = None

    async def _follow_schedule(self, is_past_due: bool) -> None:
        due = now()
        if is_past_due or self._runs_on_startup:
            await self._invoke(is_past_due=is_past_due)
            self._record_run(due)
        while True:
            due = self._schedule.after(max(now(), due))  # the sleep may end a little early
            await asyncio.sleep((due - now()).total_seconds())
            await self._invoke()
            self._record_run(due)

    async def _invoke(self, *, is_past_due: bool = False) -> None:
        async with self._running:
            document = {
                "Schedule": {"AdjustForDST": True},
                "ScheduleStatus": self._monitor.document() if self._monitor else None,
                "IsPastDue": is_past_due,
            }
            data = TypedData(json=json.dumps(document))
            await self._invoker.run({self._function.trigger.name: data})

    def _record_run(self, due: datetime) -> None:
        if self._monitor is None:
            return
        try:
            self._monitor.record_run(due)
        except OSError as error:
            log.error("not kept: %s", error, extra={"function": self._function.name})


@dataclass(frozen=True, slots=True)
class TimerSchedule:
    """The times of a timer: the occurrences of an expression in UTC, or one each `interval`."""

    expression: str
    interval: timedelta | None = None

    @classmethod
    def parse(cls, text: str) -> "TimerSchedule":
        """Read a schedule; what is neither NCRONTAB nor an interval raises ValueError.

        NCRONTAB has six fields (second, minute, hour, day, month, day of week), or five without the
        seconds. An interval is written `hh:mm:ss`.
        """
        fields = text.split()
        if len(fields) == 1:
            return cls(text, parse_interval(text))
        expression = " ".join(["0", *fields] if len(fields) == 5 else fields)
        if len(expression.split()) != 6:
            raise ValueError(f"schedule {text!r}: six fields are needed, seconds first")
        is_ncrontab = (
            all(CRON_FIELD.fullmatch(field) for field in fields)
            and not EIGHTH_DAY.search(fields[-1])
            and croniter.is_valid(expression, second_at_beginning=True)
        )
        if not is_ncrontab:
            raise ValueError(f"schedule {text!r} is not NCRONTAB")
        schedule = cls(expression)
        try:
            schedule.after(now())
        except CroniterBadDateError as error:  # such as the 31st of February
            raise ValueError(f"schedule {expression!r} never comes") from error
        return schedule

    def after(self, moment: datetime) -> datetime:
        """The first occurrence later than the moment; a day must suit both of its fields."""
        if self.interval is not None:
            return moment + self.interval
        steps = croniter(self.expression, moment, second_at_beginning=True, day_or=False)
        occurrence: datetime = steps.get_next(datetime)
        return occurrence

    def is_monitored(self, moment: datetime) -> bool:
        """Return whether the real host keeps the status: not below a minute between occurrences."""
        first = self.after(moment)
        return self.after(first) - first >= MONITORED_INTERVAL


def parse_interval(text: str) -> timedelta:
    """Read the time between two occurrences; it must be above nothing and end."""
    try:
        seconds = parse_timespan(text)
    except ValueError as error:
        raise ValueError(f"schedule {text!r}: neither NCRONTAB nor an interval") from error
    if seconds == 0 or math.isinf(seconds):
        raise ValueError(f"schedule {text!r}: an interval must be longer than nothing")
    return timedelta(seconds=seconds)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """The status that the real host keeps in a blob for each timer."""

    last: datetime
    next: datetime
    updated: datetime

    def document(self) -> dict[str, str]:
        return {
            "Last": self.last.isoformat(),
            "LastUpdated": self.updated.isoformat(),
            "Next": self.next.isoformat(),
        }


class ScheduleMonitor:
    """The last and the next run of a timer. Without a file they are forgotten with the process."""

    def __init__(self, schedule: TimerSchedule, path: Path | None) -> None:
        self._schedule = schedule
        self._path = path
        self._status: ScheduleStatus | None = None

    def begin(self, now: datetime) -> bool:
        """Read what is kept; return whether an occurrence was missed. Raises OSError."""
        kept = self._read()
        self._status = kept or ScheduleStatus(NEVER, self._schedule.after(now), NEVER)
        if kept is None:
            self._write()
            return False
        expected = kept.next if kept.last == NEVER else self._schedule.after(kept.last)
        return expected < now

    def record_run(self, occurrence: datetime) -> None:
        """Keep a run that was due at a time. Raises OSError."""
        self._status = ScheduleStatus(occurrence, self._schedule.after(occurrence), occurrence)
        self._write()

    def document(self) -> dict[str, str] | None:
        return self._status.document() if self._status else None

    def _read(self) -> ScheduleStatus | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            kept = json.loads(self._path.read_text("utf-8"))
            names = ("Last", "Next", "LastUpdated")
            return ScheduleStatus(*(datetime.fromisoformat(kept[name]) for name in names))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is no status of a timer, begun anew: %s", self._path, error)
            return None

    def _write(self) -> None:
        if self._path is None or self._status is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A crash leaves either the old file or the new one, never half of one.
        temporary = self._path.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(self._status.document(), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)

"""Schedules of timers: NCRONTAB in UTC, or a fixed interval."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import CroniterBadDateError, croniter

from local.functions_host.timespan import seconds_of

MONITORED_INTERVAL = timedelta(minutes=1)
ITEM = r"(?:\*|(?:\d+|[A-Za-z]{3,9})(?:-(?:\d+|[A-Za-z]{3,9}))?)(?:/\d+)?"
EIGHTH_DAY = re.compile(r"(?:^|[,-])7")
FIELD = re.compile(rf"{ITEM}(?:,{ITEM})*", re.ASCII)  # less than other crons offer


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a timer is due: the occurrences of an expression, or one each `interval`."""

    expression: str
    interval: timedelta | None = None

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read a schedule; what is neither NCRONTAB nor an interval raises ValueError.

        NCRONTAB has six fields (second, minute, hour, day, month, day of week), or five without the
        seconds. An interval is written `hh:mm:ss`.
        """
        fields = text.split()
        if len(fields) == 1:
            return cls(text, interval_of(text))
        expression = " ".join(["0", *fields] if len(fields) == 5 else fields)
        if len(expression.split()) != 6:
            raise ValueError(f"schedule {text!r}: six fields are needed, seconds first")
        is_known = all(FIELD.fullmatch(field) for field in fields)
        is_known = is_known and not EIGHTH_DAY.search(fields[-1])
        if not is_known or not croniter.is_valid(expression, second_at_beginning=True):
            raise ValueError(f"schedule {text!r} is not NCRONTAB")
        return cls(expression).require_occurrence()

    def require_occurrence(self) -> "Schedule":
        """The schedule itself; one of days that never come raises ValueError."""
        try:
            self.after(now())
        except CroniterBadDateError as error:
            raise ValueError(f"schedule {self.expression!r} never comes") from error
        return self

    def after(self, moment: datetime) -> datetime:
        """The first occurrence later than the moment; a day must suit both of its fields."""
        if self.interval is not None:
            return moment + self.interval
        steps = croniter(self.expression, moment, second_at_beginning=True, day_or=False)
        occurrence: datetime = steps.get_next(datetime)
        return occurrence

    def is_monitored(self, moment: datetime) -> bool:
        """Whether the real host would keep the status: not below a minute between occurrences."""
        first = self.after(moment)
        return self.after(first) - first >= MONITORED_INTERVAL


def interval_of(text: str) -> timedelta:
    """Read the time between two occurrences; it must be above nothing and end."""
    try:
        seconds = seconds_of(text)
    except ValueError as error:
        raise ValueError(f"schedule {text!r}: neither NCRONTAB nor an interval") from error
    if seconds == 0 or math.isinf(seconds):
        raise ValueError(f"schedule {text!r}: an interval must be longer than nothing")
    return timedelta(seconds=seconds)


def now() -> datetime:
    """The time on the wall, in UTC."""
    return datetime.now(UTC)

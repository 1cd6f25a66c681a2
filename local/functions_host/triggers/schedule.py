"""NCRONTAB schedules with seconds, in UTC."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import croniter

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


def now() -> datetime:
    """The time on the wall, in UTC."""
    return datetime.now(UTC)

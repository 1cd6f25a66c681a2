"""Times as people read them: how long ago, and when in UTC."""

from datetime import UTC, datetime

# Each unit is used up to so many seconds.
UNITS = ((90.0, 1.0, "s"), (5_400.0, 60.0, "min"), (172_800.0, 3_600.0, "h"))


def describe_elapsed(seconds: float) -> str:
    """Return how long ago something was, in one unit; clocks may be apart, so never in the future.

    >>> describe_elapsed(100)
    '2 min ago'
    """
    return f"{write_span(max(0.0, seconds))} ago"


def write_span(seconds: float) -> str:
    for below, unit, name in UNITS:
        if seconds < below:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


def describe_time(seconds: float, now: float) -> str:
    """Return a time in seconds since 1970 in both ways.

    >>> describe_time(1_780_000_000, 1_780_000_100)
    '2 min ago, 2026-05-28 20:26:40 UTC'
    """
    return f"{describe_elapsed(now - seconds)}, {datetime.fromtimestamp(seconds, UTC):%F %T} UTC"


def describe_due(seconds: float, now: float) -> str:
    """Return a time that may be still to come, in both ways.

    >>> describe_due(1_780_000_100, 1_780_000_000)
    'in 2 min, 2026-05-28 20:28:20 UTC'
    """
    past = describe_time(seconds, now)
    if seconds <= now:
        return past
    return f"in {write_span(seconds - now)}, {past.partition(', ')[2]}"


def parse_seconds(moment: str) -> float:
    """Return an ISO time in seconds since 1970; without a zone it is in UTC."""
    at = datetime.fromisoformat(moment)
    return at.replace(tzinfo=at.tzinfo or UTC).timestamp()

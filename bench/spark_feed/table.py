"""The measurements as people read them."""

from collections.abc import Sequence

from bench.spark_feed.processes import MIB
from bench.spark_feed.runs import SendRun

HEAD = (
    f"{'':26}{'events':>9}{'seconds':>9}{'sending':>9}{'events/s':>10}{'sending':>9}"
    f"{'busy us':>9}{'MiB':>7}{'cloud MiB':>11}"
)

GROWTH_HEAD = (
    f"{'days':>6}{'rows':>9}{'seconds':>9}{'us/row':>9}{'busy':>7}{'one more row':>15}{'busy':>7}"
)


def format_line(name: str, sent: SendRun) -> str:
    """A row of the comparison; *busy us* is processor time per event."""
    times = f"{sent.seconds:9.1f}{sent.sending_seconds:9.0f}"
    whole = format_rate(sent.events, sent.seconds)
    sending = format_rate(sent.events, sent.sending_seconds)
    rates = f"{whole:>10}{sending:>9}"
    busy = f"{1e6 * sent.busy_seconds / sent.events:9.0f}" if sent.events else f"{'':9}"
    memory = f"{sent.memory_bytes / MIB:7.0f}{sent.cloud_bytes / MIB:11.0f}"
    return f"{name:26}{sent.events:9}{times}{rates}{busy}{memory}"


def format_rate(events: int, seconds: float) -> str:
    return f"{events / seconds:.0f}" if events and seconds else ""


def format_ratio(name: str, feed: SendRun, rival: SendRun) -> str:
    """The feed's rate beside a rival's, for the whole job and for its sending alone."""
    theirs = rival.events / rival.seconds
    whole = feed.events / feed.seconds / theirs
    alone = feed.events / max(feed.sending_seconds, 1.0) / theirs
    return f"feed : {name:20} {whole:6.2f}  sending alone {alone:6.2f}"


def format_growth(measured: Sequence[tuple[int, SendRun]]) -> list[str]:
    """Time per row by size, and what each row more than in the size before has taken."""
    lines, before = [GROWTH_HEAD], None
    for days, sent in measured:
        lines.append(
            f"{days:6}{sent.rows:9}{sent.seconds:9.1f}{1e6 * sent.seconds / sent.rows:9.0f}"
            f"{1e6 * sent.busy_seconds / sent.rows:7.0f}{format_more(before, sent)}"
        )
        before = sent
    return lines


def format_more(before: SendRun | None, sent: SendRun) -> str:
    """Microseconds, and those of processor time, for each row more than before."""
    if before is None or sent.rows <= before.rows:
        return ""
    rows = sent.rows - before.rows
    seconds, busy = sent.seconds - before.seconds, sent.busy_seconds - before.busy_seconds
    return f"{1e6 * seconds / rows:15.0f}{1e6 * busy / rows:7.0f}"

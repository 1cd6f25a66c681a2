"""The measurements as people read them."""

from collections.abc import Sequence

from bench.spark_feed.children import MIB
from bench.spark_feed.runs import Sent

HEAD = (
    f"{'':26}{'events':>9}{'seconds':>9}{'sending':>9}{'events/s':>10}{'sending':>9}"
    f"{'busy us':>9}{'MiB':>7}{'cloud MiB':>11}"
)

GROWTH_HEAD = (
    f"{'days':>6}{'rows':>9}{'seconds':>9}{'us/row':>9}{'busy':>7}{'one more row':>15}{'busy':>7}"
)


def line(name: str, sent: Sent) -> str:
    """A row of the comparison; *busy us* is processor time per event."""
    times = f"{sent.seconds:9.1f}{sent.sending_seconds:9.0f}"
    rates = f"{rate(sent.events, sent.seconds):>10}{rate(sent.events, sent.sending_seconds):>9}"
    busy = f"{1e6 * sent.busy_seconds / sent.events:9.0f}" if sent.events else f"{'':9}"
    memory = f"{sent.memory_bytes / MIB:7.0f}{sent.cloud_bytes / MIB:11.0f}"
    return f"{name:26}{sent.events:9}{times}{rates}{busy}{memory}"


def rate(events: int, seconds: float) -> str:
    """Events per second, where there were any."""
    return f"{events / seconds:.0f}" if events and seconds else ""


def ratio(name: str, feed: Sent, rival: Sent) -> str:
    """The feed's rate beside a rival's, for the whole job and for its sending alone."""
    theirs = rival.events / rival.seconds
    whole = feed.events / feed.seconds / theirs
    alone = feed.events / max(feed.sending_seconds, 1.0) / theirs
    return f"feed : {name:20} {whole:6.2f}  sending alone {alone:6.2f}"


def growth(measured: Sequence[tuple[int, Sent]]) -> list[str]:
    """Time per row by size, and what each row more than in the size before has taken."""
    told, before = [GROWTH_HEAD], None
    for days, sent in measured:
        told.append(
            f"{days:6}{sent.rows:9}{sent.seconds:9.1f}{1e6 * sent.seconds / sent.rows:9.0f}"
            f"{1e6 * sent.busy_seconds / sent.rows:7.0f}{more(before, sent)}"
        )
        before = sent
    return told


def more(before: Sent | None, sent: Sent) -> str:
    """Microseconds, and those of processor time, for each row more than before."""
    if before is None or sent.rows <= before.rows:
        return ""
    rows = sent.rows - before.rows
    seconds, busy = sent.seconds - before.seconds, sent.busy_seconds - before.busy_seconds
    return f"{1e6 * seconds / rows:15.0f}{1e6 * busy / rows:7.0f}"

"""How fast the Spark feed is, beside bare loops that send the same messages.

    python -m bench.spark_feed [--days N] [--growth 1,30] [--books N] [--logs DIR]

Each system sends N days of flights to both namespaces of a fresh local cloud without hosts, on the
same cores as the cloud. The feed's time is the whole job's: Spark's start, reading, judging,
numbering, binding and sending; a second run over the same source follows, and should send nothing.
The bare loops only send what the feed has made. *Busy* is processor time of the system's own,
without the cloud's; a shared machine changes it less than the seconds. The year is 365 days.

--growth repeats the first run for several sizes; --books plants one wrong message in so many and
has them reconciled, without a cloud.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cloud import Cloud, running
from bench.spark_feed.books import one_in
from bench.spark_feed.children import MIB, Ended, measured, together

QUEUE = "lockstep"
GROUP = "flights"
HEAD = f"{'':28}{'events':>9}{'seconds':>9}{'busy':>8}{'events/s':>10}{'MiB':>7}"


@dataclass(frozen=True, slots=True)
class Sent:
    """What one system did: events sent, seconds, processor time of its own, and memory."""

    events: int
    seconds: float
    busy_seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run keeps its own."""

    folder: Path
    logs: Path

    @property
    def manifest(self) -> Path:
        """What the feed has fed."""
        return self.folder / "manifest"

    @property
    def summary(self) -> Path:
        """What the feed says of itself."""
        return self.folder / "summary.json"


def main() -> None:
    """Measure as asked on the command line."""
    options = parse_arguments()
    options.logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch:
        if options.days:
            compare(options.days, Place(Path(scratch, "compare"), options.logs))
        for days in options.growth:
            grow(days, Place(Path(scratch, f"days-{days}"), options.logs))
    if options.books:
        one_in(options.books)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_feed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--days", type=int, default=1, help="of flights to compare with (1)")
    parser.add_argument("--growth", type=sizes, default=[], help="days, comma separated (none)")
    parser.add_argument("--books", type=int, default=0, help="messages to reconcile (none)")
    parser.add_argument(
        "--logs", type=Path, default=Path(tempfile.gettempdir(), "bench-spark-logs")
    )
    return parser.parse_args()


def sizes(text: str) -> list[int]:
    """Whole numbers, comma separated."""
    return [int(word) for word in text.split(",") if word]


def compare(days: int, place: Place) -> None:
    """The feed, its second run, and the bare loop in one and two processes."""
    place.folder.mkdir(parents=True)
    print(f"{days} days of flights into two namespaces\n{HEAD}", flush=True)
    with fresh_cloud(place) as environment:
        print(line("feed, local[2]", fed(days, place, environment)), flush=True)
        print(line("feed again, nothing new", fed(days, place, environment)), flush=True)
    for processes in (1, 2):
        with fresh_cloud(place) as environment:
            name = f"bare loop, {processes} process{'es' * (processes > 1)}"
            print(line(name, bare(processes, place, environment)), flush=True)


def grow(days: int, place: Place) -> None:
    """The feed's time per row for a number of days."""
    place.folder.mkdir(parents=True)
    with fresh_cloud(place) as environment:
        sent = fed(days, place, environment)
    rows = json.loads(place.summary.read_text())["rows"]
    print(
        f"{days:4} days: {rows} rows, {sent.events} events, {sent.seconds:.1f} s; a row takes "
        f"{1e6 * sent.seconds / rows:.0f} us, {1e6 * sent.busy_seconds / rows:.0f} us busy",
        flush=True,
    )


@contextmanager
def fresh_cloud(place: Place) -> Iterator[Mapping[str, str]]:
    """App settings for a cloud without hosts that ends with the context."""
    with running(["--no-hosts"], place.logs / "cloud") as cloud:
        yield settings(cloud)


def settings(cloud: Cloud) -> Mapping[str, str]:
    """The app settings that reach a cloud."""
    buses, cosmos = cloud.contract["servicebus"], cloud.contract["cosmos"]
    connection = f"AccountEndpoint={cosmos['endpoint']};AccountKey={cosmos['key']};"
    return {
        "LOCKSTEP_REGIONS": ",".join(buses),
        "LOCKSTEP_QUEUE": QUEUE,
        "LOCKSTEP_DATABASE": cosmos["database"],
        "Cosmos": connection,
        **{f"ServiceBus_{region}": text for region, text in buses.items()},
    }


def fed(days: int, place: Place, environment: Mapping[str, str]) -> Sent:
    """Feed so many days by the manifest: what it did."""
    words = [f"--days={days}", f"--group={GROUP}", f"--manifest={place.manifest}"]
    words += [f"--rejects={place.folder / 'rejects'}", f"--summary={place.summary}"]
    done = measured("spark.feed", words, environment, place.logs / "feed.log")
    events: int = json.loads(place.summary.read_text())["sent"]
    return Sent(events, done.seconds, done.busy_seconds, done.memory_bytes)


def bare(processes: int, place: Place, environment: Mapping[str, str]) -> Sent:
    """Send what the feed was bound to with so many bare loops."""
    buses = [text for name, text in environment.items() if name.startswith("ServiceBus_")]
    plan = str(place.manifest / "plan")
    programs = [
        ("bench.spark_feed.bare", [plan, QUEUE, str(part), str(processes), *buses])
        for part in range(processes)
    ]
    return sent_together(together(programs, environment, place.logs / "bare.log"))


def sent_together(ended: list[Ended]) -> Sent:
    """What several loops sent, from the first one's start to the last one's end."""
    told = [json.loads(each.output) for each in ended]
    seconds = max(each["ended"] for each in told) - min(each["began"] for each in told)
    events = sum(each["messages"] for each in told)
    return Sent(events, seconds, ended[0].busy_seconds, ended[0].memory_bytes)


def line(name: str, sent: Sent) -> str:
    """A row of the table."""
    times = f"{sent.seconds:9.1f}{sent.busy_seconds:8.1f}{sent.events / sent.seconds:10.0f}"
    return f"{name:28}{sent.events:9}{times}{sent.memory_bytes / MIB:7.0f}"


if __name__ == "__main__":
    main()

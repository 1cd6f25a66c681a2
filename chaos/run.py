"""One run from an empty directory to a verdict, and the verdict on a run that was made before."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.cloud import COMPACT_SECONDS, RETENTION_SECONDS, Cloud, running_cloud
from chaos.course import Course
from chaos.display import Display
from chaos.judge.reading import read_history
from chaos.judge.verdict import Finding, judge
from chaos.load import write_load
from chaos.options import Options
from chaos.places import Places
from chaos.progress import Progress
from chaos.records import Record
from chaos.remains import read_remains
from chaos.report import Report
from chaos.sending import sending
from chaos.stage import Stage
from chaos.timeline import read_timeline
from chaos.weather import Weather
from chaos.witness import BUSES_SETTING
from demo.children import Child
from demo.data import DataRefused, held

MARKER = "lockstep-chaos.json"
# An entry is old when compaction has had two turns to remove it.
OLD_SECONDS = RETENTION_SECONDS + 2 * COMPACT_SECONDS


def run(options: Options) -> int:
    """Run, judge, report; the answer is the exit status: 0 when every promise held, else 1."""
    console = Console(highlight=False)
    places = Places(options.data)
    with emptied(options.data):
        options.remember()
        console.print(f"seed {options.seed}; making messages out of real flights")
        made = write_load(places.load, options.messages_max, options.operation_max, options.seed)
        console.print(f"{made} messages at most; starting Azure on this machine")
        perform(options, places, console)
        return conclude(options, console)


def conclude(options: Options, console: Console) -> int:
    """Judge what a run left in its directory; raises DataRefused where that cannot be read."""
    places = Places(options.data)
    if not places.remains.exists():
        raise DataRefused(f"{options.data} holds no run that came to its end")
    console.print("judging")
    try:
        history, timeline = read_history(places), read_timeline(places.course)
    except (KeyError, TypeError, ValueError) as error:
        raise DataRefused(f"what is in {options.data} is not a run's: {error!r}") from error
    report = Report.of(options.recalled(), history, timeline, judge(history))
    report.write()
    tell(report, console)
    return 1 if report.violations else 0


def perform(options: Options, places: Places, console: Console) -> None:
    """Perform the run; what it did and what came of it is in its files then."""
    with ExitStack() as running:
        course = Course(running.enter_context(Record(places.course)))
        cloud = running.enter_context(running_cloud(options, places))
        running.enter_context(witness(cloud, places))
        sender = running.enter_context(sending(cloud, options, places))
        display = running.enter_context(Display(console, is_plain=options.is_plain))
        weather = Weather(cloud, sender, course, options.seed, options.ease)
        stage = Stage(cloud, sender, weather, course, Progress.of(places), display, options)
        stage.perform()
        remains = read_remains(cloud.stack, OLD_SECONDS)
        places.remains.write_text(json.dumps(asdict(remains)), encoding="utf-8")


@contextmanager
def witness(cloud: Cloud, places: Places) -> Iterator[Child]:
    """Run the witness for one `with` block."""
    command = [sys.executable, "-m", "chaos.witness", "--record", str(places.witnessed)]
    buses = {BUSES_SETTING: json.dumps(cloud.stack.contract["servicebus"])}
    with Child(command, log=places.logs / "witness.log", environment=buses) as child:
        yield child


def tell(report: Report, console: Console) -> None:
    """Print the verdict, and where the report is."""
    figures = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in report.rows():
        figures.add_row(row.label, row.value)
    console.print()
    console.print(figures)
    console.print()
    for finding in report.findings:
        console.print(line_of(finding), soft_wrap=True)
    console.print()
    if not report.violations:
        console.print(Text("every promise held", style="bold green"))
    console.print(f"report: {report.options.report}", soft_wrap=True)


def line_of(finding: Finding) -> Text:
    """A promise in one line."""
    if finding.violations:
        return Text(f"BROKEN  {finding}", style="bold red")
    return Text.assemble(("ok", "green"), f"  {finding}")


@contextmanager
def emptied(directory: Path) -> Iterator[None]:
    """Hold the directory of a run, with nothing in it that an earlier run left.

    Raises DataRefused for one that is in use, or that has files in it which no run made.
    """
    marker = directory / MARKER
    if directory.exists() and any(directory.iterdir()) and not marker.exists():
        raise DataRefused(f"{directory} is not empty and was not made by a run; use --data")
    directory.mkdir(parents=True, exist_ok=True)
    with held(marker):
        for path in directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != marker:
                path.unlink()
        yield

"""One run from an empty machine to a verdict."""

import time
from collections.abc import Mapping
from contextlib import ExitStack

from rich.console import Console

from demo.costs import costs
from demo.course import feed_rate
from demo.data import data_directory, note_feed
from demo.display import Display, PlainDisplay
from demo.failover import failover
from demo.feed import start_feed
from demo.flights import Expected, expected
from demo.history import Entry, History
from demo.journal import Reading, read_journal
from demo.live import LiveDisplay
from demo.options import Options
from demo.outcome import Outcome, Rejects
from demo.report import write_report
from demo.samples import Sample, Timeline
from demo.source import SourceUnreadable, default_source, read_rows
from demo.stack import Stack, stack
from demo.stage import Ending, Stage
from demo.summary import print_summary
from demo.up import keep_up
from demo.verdict import judge


def run(options: Options) -> int:
    """Run the demo; the answer is the exit status: 0 when every promise held, else 1."""
    console = Console(highlight=False)
    timeline = Timeline(time.time())
    with data_directory(options) as marker, ExitStack() as running:
        note_feed(marker, options)
        console.print("counting what the source holds")
        wanted = recount(options)
        console.print(f"{len(wanted.sent)} messages; starting Azure on this machine")
        here = running.enter_context(stack(options.data / "cloud", options.logs))
        outcome = perform(here, options, wanted, timeline, display_for(console, options))
        write_report(outcome)
        print_summary(console, outcome)
        if options.keeps_running:
            keep_up(console, here)
    return 1 if outcome.problems() else 0


def recount(options: Options) -> Expected:
    """Return what the source calls for; raises SourceUnreadable when that is nothing at all."""
    source = options.source or default_source()
    wanted = expected(lambda: read_rows(source), options.days)
    if not wanted.sent:
        raise SourceUnreadable(f"{source} holds no flight that could become messages")
    return wanted


def perform(
    here: Stack, options: Options, wanted: Expected, timeline: Timeline, display: Display
) -> Outcome:
    """Feed the stack, go through the course, and judge what is in the journal at the end."""
    before = read_journal(here)
    counters = here.control.counters()
    primary, secondary = here.regions
    display.begin(timeline, copies=2 * len(wanted.sent))
    feed = start_feed(here, options, options.rate or feed_rate(len(wanted.sent)))
    with feed.child, display:
        stage = Stage(here, feed, display, timeline, len(wanted.sent), primary, secondary)
        stage.tell("Azure is up, both hosts are ready; Spark is starting to feed")
        ending = stage.perform(kills=options.kills)
    added = entries_added(before, ending.reading)
    return Outcome(
        options=options,
        verdict=judge(history(wanted, ending)),
        rejects=Rejects(reported=feed.rejected(), recounted=wanted.rejected),
        costs=costs(counters, ending.counters, len(wanted.sent)),
        added=added,
        is_first=not before.entries,
        timeline=timeline,
        outage=ending.outage,
        failover=failover(added, ending.outage, primary=primary, secondary=secondary)
        if ending.outage
        else None,
    )


def history(wanted: Expected, ending: Ending) -> History:
    """Put together what the verdict judges."""
    return History(
        sent=wanted.sent,
        entries=ending.reading.entries,
        owed=ending.reading.owed,
        left=left_in(ending.sample),
    )


def left_in(sample: Sample) -> Mapping[str, int]:
    """Return how many messages the queue of each region still holds, dead letters included."""
    return {name: region.outstanding + region.dead for name, region in sample.regions.items()}


def entries_added(before: Reading, after: Reading) -> tuple[Entry, ...]:
    """Return the entries that came into the journal between two readings, effects only."""
    known = {(entry.session, entry.position) for entry in before.entries}
    return tuple(
        entry for entry in after.completed() if (entry.session, entry.position) not in known
    )


def display_for(console: Console, options: Options) -> Display:
    """Choose the live display on a terminal, and plain lines everywhere else."""
    return PlainDisplay() if options.is_plain or not console.is_terminal else LiveDisplay(console)

"""Feed only what is new, late or changed since the last run, by the manifest beside the job."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.config import FeedConfig
from spark.feeding.judging import (
    ChangePolicies,
    Standing,
    classify_facts,
    plan_events,
    select_rejects,
)
from spark.feeding.manifest import Manifest, ManifestHistory, ManifestStep
from spark.feeding.rejects import RowCounts
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import return_memory
from spark.read.facts import SourceFacts
from spark.send.arranging import find_lane
from spark.send.datasource import EVENTS_A_LANE, EventWriter
from spark.send.rows import SendCounts

# So many sessions are looked up by name in what was fed before.
SESSIONS_NAMED_MAX = 200


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of a feed; by a manifest also the standings, and the events of unfinished runs."""

    standings: dict[str, int] = field(default_factory=dict)
    resumed: int = 0
    counts: SendCounts = field(default_factory=SendCounts)

    def __add__(self, other: "SendResult") -> "SendResult":
        names = {**self.standings, **other.standings}
        return SendResult(
            {n: self.standings.get(n, 0) + other.standings.get(n, 0) for n in names},
            self.resumed + other.resumed,
            self.counts + other.counts,
        )


@dataclass(frozen=True, slots=True)
class IncrementalFeed:
    """Sends facts by a manifest: resume unfinished runs, plan, bind, send, mark as sent."""

    manifest: Manifest
    options: FeedConfig
    writer: EventWriter
    console: JobConsole

    def run(self, source: SourceFacts, counts: RowCounts) -> SendResult:
        """Send what an unfinished run has left, then what is new; a dry run only classifies.

        `counts` are those of the source, which is released before anything new is sent. Wherever
        this stops: running it again completes it with the same numbers.
        """
        options = self.options
        self.manifest.require_exclusive()
        history = self.manifest.read_history()
        if not options.accept_mapping:
            require_same_meaning(source, history.find_meaning(options.group, options.source))
        resumed = SendCounts()
        for left in () if options.dry_run else history.unsent:
            self.console.log(
                f"run {left.run} of feed {left.feed} is not finished since {left.since}: that feed "
                "has died or is still sending; its events are sent again, without a second effect"
            )
            resumed += self.send_run(left)
        fed = self.manifest.read_newest(history).where(F.col("group") == options.group)
        if counts.sessions <= SESSIONS_NAMED_MAX:
            # A summary is sorted by session, so that most of its files need not be read for a few.
            named = source.facts.select("session").distinct().collect()
            fed = fed.where(F.col("session").isin([row["session"] for row in named]))
        # What is unchanged is only counted: of all others, which may be few, the bodies are kept.
        classified = classify_facts(source.facts, fed)
        differing = classified.where(F.col("standing") != Standing.SAME).persist()
        policies = ChangePolicies(options.late, options.changed)
        try:
            with self.console.show_progress("comparing with the manifest"):
                rows = differing.groupBy("standing").agg(F.count("*").alias("facts")).collect()
            counted = {row["standing"]: row["facts"] for row in rows}
            counted[Standing.SAME] = counts.events - sum(counted.values())
            found = {standing.value: counted.get(standing, 0) for standing in Standing}
            self.console.log("; ".join(f"{found[standing]} {standing}" for standing in Standing))
            if options.dry_run:
                return SendResult(found)
            if options.changed_max is not None:
                known = (Standing.CHANGED, Standing.STALE, Standing.SAME)
                fed_before = sum(found[standing] for standing in known)
                options.changed_max.require(found[Standing.CHANGED], fed_before)
            if any(found[standing] for standing in policies.rejected):
                rejects = select_rejects(differing, policies)
                rejects.coalesce(1).write.json(options.rejects, mode="append")
            events = sum(found[standing] for standing in policies.sent)
            plan = plan_events(differing, options.group, policies)
            step = self.bind_new(plan, events, source, history)
        finally:
            differing.unpersist(blocking=True)
        # A plan is sent from its files, so nothing that is cached is needed any more.
        source.release()
        sent = SendCounts()
        if step is not None:
            # It takes Java a quarter of a second, which is too much for what one task sends.
            if step.events > EVENTS_A_LANE:
                return_memory(self.manifest.spark)
            sent = self.send_run(step)
        self.manifest.summarise()
        return SendResult(found, resumed.sent, resumed + sent)

    def bind_new(
        self, plan: DataFrame, events: int, source: SourceFacts, history: ManifestHistory
    ) -> ManifestStep | None:
        """Bind a run to its plan; returns None if it has no events.

        A run without events is begun all the same if the watermark has moved, or another mapping is
        accepted, to record it.
        """
        group, name = self.options.group, self.options.source
        has_moved = source.watermark not in (None, history.find_watermark(group, name))
        is_other = source.meaning != history.find_meaning(group, name)
        if not (events or has_moved or (is_other and self.options.accept_mapping)):
            return None
        with self.console.show_progress("binding numbers"):
            step = self.manifest.bind(
                history.newest + 1,
                plan,
                source.watermark,
                group=group,
                source=name,
                meaning=source.meaning,
                choose_lanes=partial(self.writer.choose_lanes, self.manifest.spark),
            )
        self.console.log(f"run {step.run} is bound to {step.events} events; sending them")
        return step

    def send_run(self, step: ManifestStep) -> SendCounts:
        """Send a run's plan, but for the lanes that an earlier feed has sent.

        The end of a lane is recorded when its task says so. If that is not heard, the lane is sent
        again, which has no further effect.
        """
        counts, plan, events = SendCounts(), self.manifest.read_plan(step), step.events
        done = self.manifest.list_sent_lanes(step) if step.lanes else []
        if step.lanes and done:
            plan = plan.where(~find_lane(step.lanes).isin(done))
            events = plan.count()
            self.console.log(
                f"{len(done)} of its {step.lanes} lanes are sent; {events} events left"
            )
        note_end = partial(self.manifest.mark_lane_sent, step) if step.lanes else None
        if events:
            with self.console.show_progress("sending", events, note_end) as display:
                lanes = step.lanes or self.writer.lanes
                writer = replace(self.writer, progress=display.address, lanes=lanes)
                counts = writer.send(plan, events)
        self.manifest.mark_sent(step)
        return counts


def require_same_meaning(source: SourceFacts, before: Mapping[str, str] | None) -> None:
    """Raise JobRefused, naming all that differs, if the mapping meant something else before."""
    meaning = source.meaning
    if meaning is None or before is None:
        return
    # An older release did not record the options.
    before = {"options": meaning.get("options", "none"), **before}
    if names := sorted(n for n in {*before, *meaning} if before.get(n) != meaning.get(n)):
        difference = "; ".join(
            f"{n} was {before.get(n, 'none')}, is {meaning.get(n, 'none')}" for n in names
        )
        raise JobRefused(
            f"the rows mean something else than in the last feed ({difference}): most would "
            "count as changed; --accept-mapping feeds them all the same"
        )

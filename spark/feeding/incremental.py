"""Feed only what is new, late or changed since the last run, by the manifest beside the job."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.settings import read_body_limit
from spark.feeding.config import DELETED_MAX, DeletedPolicy, FeedConfig
from spark.feeding.judging import (
    ChangePolicies,
    Standing,
    classify_facts,
    plan_events,
    select_rejects,
)
from spark.feeding.manifest import Manifest, ManifestHistory, ManifestStep
from spark.feeding.rejects import RowCounts, reject_unsendable
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import return_memory
from spark.job.settings import read_app_settings
from spark.read.facts import SourceFacts
from spark.send.arranging import find_lane
from spark.send.datasource import EVENTS_A_LANE, EventWriter, require_all_sent
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

    def run(self, source: SourceFacts, counts: RowCounts, *, is_batch: bool = False) -> SendResult:
        """Send what an unfinished run has left, then what is new; a dry run only classifies.

        `counts` are those of the source, which is released before anything new is sent, and which
        may be a batch of a stream. Wherever this stops: running it again completes it with the same
        numbers.
        """
        options = self.options
        self.manifest.require_exclusive()
        history = self.manifest.read_history()
        if not options.accept_mapping:
            require_same_meaning(source, history.find_meaning(options.group, options.source))
        if options.deleted is not None:
            require_whole_source(source, history, options, is_batch=is_batch)
        resumed = SendCounts() if options.dry_run else self.end_unfinished(history)
        fed = self.manifest.read_newest(history).where(F.col("group") == options.group)
        if options.deleted is None and counts.sessions <= SESSIONS_NAMED_MAX:
            # A summary is sorted by session, so that most of its files need not be read for a few.
            named = source.facts.select("session").distinct().collect()
            fed = fed.where(F.col("session").isin([row["session"] for row in named]))
        # What is unchanged is only counted: of all others, which may be few, the bodies are kept.
        finds_gone = options.deleted is not None
        classified = classify_facts(source.facts, fed, source.deletion, finds_gone=finds_gone)
        differing = classified.where(F.col("standing") != Standing.SAME).persist()
        most = read_body_limit(read_app_settings(options.settings))
        policies = ChangePolicies(options.late, options.changed, options.deleted, most)
        try:
            with self.console.show_progress("comparing with the manifest"):
                rows = differing.groupBy("standing").agg(F.count("*").alias("facts")).collect()
            counted = {row["standing"]: row["facts"] for row in rows}
            of_rows = sum(counted.values()) - counted.get(Standing.DELETED, 0)
            counted[Standing.SAME] = counts.events - of_rows
            found = {standing.value: counted.get(standing, 0) for standing in Standing}
            if not finds_gone:
                del found[Standing.DELETED]
            listed = [
                each for each in Standing if each in found and each is not Standing.UNSENDABLE
            ]
            self.console.log("; ".join(f"{found[standing]} {standing}" for standing in listed))
            if options.dry_run:
                if any(found[standing] for standing in policies.sent):
                    self.count_unsendable(found, differing, policies, None)
                return SendResult(found)
            self.require_few_changes(found, counts)
            if any(found[standing] for standing in policies.rejected):
                rejects = select_rejects(differing, policies)
                rejects.coalesce(1).write.json(options.rejects, mode="append")
            step = self.bind_new(differing, found, policies, source, history)
        finally:
            differing.unpersist(blocking=True)
        # A plan is sent from its files, so nothing that is cached is needed any more.
        source.release()
        sent = SendCounts()
        if step is not None:
            # It takes Java a quarter of a second, which is too much for what one task sends.
            if step.events > EVENTS_A_LANE:
                return_memory(self.manifest.spark)
            sent = self.send_run(step, self.manifest.read_plan(step), step.events)
        self.manifest.summarise()
        return SendResult(found, resumed.sent, resumed + sent)

    def require_few_changes(self, found: Mapping[str, int], counts: RowCounts) -> None:
        """Raise JobRefused if more is changed or deleted than the options allow."""
        options, deleted = self.options, found.get(Standing.DELETED, 0)
        known = (Standing.CHANGED, Standing.STALE, Standing.SAME)
        fed_before = sum(found[standing] for standing in known) + deleted
        if options.changed_max is not None:
            options.changed_max.require(found[Standing.CHANGED], fed_before)
        if options.deleted is not DeletedPolicy.SEND:
            return
        limit = DELETED_MAX if options.changed_max is None else options.changed_max
        limit.require(deleted, fed_before, "deleted")
        unread = {why: n for why, n in counts.rejects.items() if why != Standing.REPEATED}
        if deleted and unread:
            reasons = ", ".join(f"{count} {why}" for why, count in unread.items())
            raise JobRefused(
                f"{deleted} rows are gone, but other rows are rejected ({reasons}) and may be "
                "these: correct them, or say --deleted report; nothing of this run was sent"
            )

    def bind_new(
        self,
        differing: DataFrame,
        found: dict[str, int],
        policies: ChangePolicies,
        source: SourceFacts,
        history: ManifestHistory,
    ) -> ManifestStep | None:
        """Plan what is to be sent, and bind a run to it; returns None if that has no events.

        A run without events is begun all the same if the watermark has moved, or another mapping is
        accepted, to record it. What cannot be sent becomes a reject, and moves to that in `found`.
        Raises JobRefused, and binds nothing, if the plan that can be read holds another number of
        events than was found.
        """
        options = self.options
        group, name = options.group, options.source
        has_moved = source.watermark not in (None, history.find_watermark(group, name))
        is_other = source.meaning != history.find_meaning(group, name)
        is_news = has_moved or (is_other and options.accept_mapping)
        planned = sum(found[standing] for standing in policies.sent)
        if not planned and not is_news:
            return None
        run = history.newest + 1
        with self.console.show_progress("binding numbers"):
            events = self.manifest.write_plan(run, plan_events(differing, group, policies))
            # Only then is it worth while to ask the gate once more what it has held back.
            if events != planned:
                self.count_unsendable(found, differing, policies, options.rejects)
            require_whole_plan(planned, found[Standing.UNSENDABLE], events, self.manifest.path)
            if not events and not is_news:
                return None
            step = self.manifest.bind(
                run,
                events,
                source.watermark,
                group=group,
                source=name,
                meaning=source.meaning,
                lanes=self.writer.choose_lanes(self.manifest.spark, events),
            )
        self.console.log(f"run {step.run} is bound to {step.events} events; sending them")
        return step

    def count_unsendable(
        self,
        found: dict[str, int],
        differing: DataFrame,
        policies: ChangePolicies,
        rejects: str | None,
    ) -> None:
        group, console = self.options.group, self.console
        refused = reject_unsendable(differing, group, policies, rejects, console)
        for standing, facts in refused.items():
            found[standing] -= facts
            found[Standing.UNSENDABLE] += facts

    def end_unfinished(self, history: ManifestHistory) -> SendCounts:
        """Send what unfinished runs of the group have left, but for one that is to be set aside."""
        unsent = {step.run: step for step in history.list_unsent(self.options.group)}
        if self.options.set_aside is not None:
            self.set_aside(self.options.set_aside, unsent)
        return sum((self.resume(step) for step in unsent.values()), SendCounts())

    def set_aside(self, run: int, unsent: dict[int, ManifestStep]) -> None:
        """Take a run out of those that are unsent; raises JobRefused if it is none of them."""
        options, path = self.options, self.manifest.path
        if run not in unsent:
            names = ", ".join(str(number) for number in unsent) or "none"
            raise JobRefused(
                f"run {run} is no unfinished run of {options.group} in {path}; unfinished: {names}"
            )
        sent, events = self.manifest.set_aside(unsent.pop(run), options.who, options.why)
        self.console.log(
            f"run {run} is set aside: {sent} of its {events} events are known to be sent; "
            f"{path}/aside/run={run} has the sessions"
        )

    def resume(self, step: ManifestStep) -> SendCounts:
        """Send of an unfinished run what no feed is known to have sent.

        Raises JobRefused, and sends nothing, if its plan is not read as it was bound.
        """
        self.console.log(
            f"run {step.run} of feed {step.feed} is not finished since {step.since}: that feed "
            "has died or is still sending; its events are sent again, without a second effect"
        )
        plan, is_left = self.manifest.read_plan(step), F.lit(col=True)
        done = self.manifest.list_sent_lanes(step) if step.lanes else []
        if step.lanes and done:
            is_left = ~find_lane(step.lanes).isin(done)
        # A lane that reads a part of its plan would be recorded as sent all the same.
        events, left = plan.agg(F.count("*"), F.count_if(is_left)).collect()[0]
        if events != step.events:
            raise JobRefused(
                f"run {step.run} is bound to {step.events} events, but {events} can be read "
                f"of its plan in {self.manifest.path}: nothing of it was sent"
            )
        if done:
            self.console.log(f"{len(done)} of its {step.lanes} lanes are sent; {left} events left")
        return self.send_run(step, plan.where(is_left), int(left), done)

    def send_run(
        self, step: ManifestStep, plan: DataFrame, events: int, done: Collection[int] = ()
    ) -> SendCounts:
        """Send so many events of a run's plan, but for lanes that are done, and record it as sent.

        The end of a lane is recorded by its task, or when the task says so. If that is not heard,
        the lane is sent again, which has no further effect.
        """
        counts = SendCounts()
        lanes_sent = self.manifest.open_lanes(step, done)
        is_heard = step.lanes and lanes_sent is None
        note_end = partial(self.manifest.mark_lane_sent, step) if is_heard else None
        if events:
            with self.console.show_progress("sending", events, note_end) as display:
                lanes = step.lanes or self.writer.lanes
                writer = replace(self.writer, reports=display.reports, lanes=lanes, sent=lanes_sent)
                counts = writer.send(plan, events)
        if counts.sent != events:
            # What a lane that has ended did not read is not sent.
            self.manifest.forget_lanes(step)
        require_all_sent(events, counts)
        self.manifest.mark_sent(step)
        return counts


def require_whole_source(
    source: SourceFacts, history: ManifestHistory, options: FeedConfig, *, is_batch: bool
) -> None:
    """Raise JobRefused unless what the group has fed, and is not in the source, must be gone."""
    if is_batch or not source.is_snapshot:
        raise JobRefused(
            "--deleted needs a source that is read whole: not a batch, and no mapping with a "
            "watermark (a version says too which state of a row is the newest)"
        )
    fed = {step.source for step in history.steps if step.group == options.group}
    if others := sorted(str(name) for name in fed - {options.source}):
        raise JobRefused(
            f"{options.group} has fed {', '.join(others)} too by this manifest, so that it is not "
            "known which of its rows are gone: --deleted needs a manifest for each source"
        )
    if options.deleted is DeletedPolicy.SEND and source.deletion is None:
        raise JobRefused("--deleted send needs a deleted_type in the mapping")


def require_whole_plan(planned: int, unsendable: int, events: int, path: str) -> None:
    """Raise JobRefused unless a plan, as it is read, holds what was to be sent and can be."""
    if planned - unsendable != events:
        raise JobRefused(
            f"{planned} events were to be planned and {unsendable} of them cannot be sent, but the "
            f"plan that was written to {path} has {events}: nothing of this run was bound or sent. "
            "Every machine must read there what any of them has written; then run it again"
        )


def require_same_meaning(source: SourceFacts, before: Mapping[str, str] | None) -> None:
    """Raise JobRefused, naming all that differs, if the mapping meant something else before."""
    meaning = source.meaning
    if meaning is None or before is None:
        return
    # An older release did not record the options. A type for what is deleted changes no row.
    added = {name: meaning[name] for name in ("options", "deleted_type") if name in meaning}
    before = {**added, **before}
    if names := sorted(n for n in {*before, *meaning} if before.get(n) != meaning.get(n)):
        difference = "; ".join(
            f"{n} was {before.get(n, 'none')}, is {meaning.get(n, 'none')}" for n in names
        )
        raise JobRefused(
            f"the rows mean something else than in the last feed ({difference}): most would "
            "count as changed; --accept-mapping feeds them all the same"
        )

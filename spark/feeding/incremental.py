"""Feed only what is new, late or changed since the last run, by the manifest beside the job."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.manifest import Manifest, ManifestHistory, ManifestStep
from spark.feeding.numbering import digest_event, number_facts
from spark.feeding.rejects import RowCounts
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import return_memory
from spark.read.facts import SourceFacts, order_newest_first
from spark.send.arranging import find_lane
from spark.send.datasource import EVENTS_A_LANE, EventWriter
from spark.send.rows import SendCounts

# So many sessions are looked up by name in what was fed before.
SESSIONS_NAMED_MAX = 200


class Standing(StrEnum):
    NEW = "new"
    LATE = "late"
    CHANGED = "changed"
    SAME = "unchanged"
    STALE = "older than what was fed"
    REPEATED = "repeated key"


class ChangePolicy(StrEnum):
    """The treatment of a late or a changed fact.

    APPEND sends it as the session's next event, after all that was sent; REJECT makes it a reject.
    """

    APPEND = "append"
    REJECT = "reject"


class MeaningChanged(JobRefused):
    """The mapping or the time zone is not that of the last feed. Nothing was sent."""


class TooManyChanged(JobRefused):
    """More rows are changed than the feed may send. Nothing of them was sent."""


@dataclass(frozen=True, slots=True)
class ChangeLimit:
    """The most rows that may be changed: a number, or a share of the rows that were fed before."""

    most: float
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> "ChangeLimit":
        """Read `100` or `5%`; raises ValueError."""
        number = text.removesuffix("%")
        is_share = number != text
        form = r"\d+(\.\d+)?" if is_share else r"\d+"
        if not re.fullmatch(form, number) or (is_share and float(number) > 100):
            raise ValueError(f"a whole number, or a share as in 5%, not {text!r}")
        return cls(float(number) / 100 if is_share else float(number), is_share)

    def require(self, changed: int, known: int) -> None:
        """Raise TooManyChanged if of so many known rows too many are changed."""
        if changed > (self.most * known if self.is_share else self.most):
            limit = f"{self.most:.4g} of them" if self.is_share else f"{self.most:.0f}"
            raise TooManyChanged(
                f"{changed} of {known} rows that were fed before are changed, over {limit}; "
                "nothing of this run was sent"
            )


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """The name of a source in the manifest, and what its mapping means (mapping.describe).

    Another meaning than that of the last feed is refused, unless `accept` is set: it would make
    every row a changed one.
    """

    name: str = ""
    meaning: Mapping[str, str] | None = None
    accept: bool = False

    def require_same(self, before: Mapping[str, str] | None) -> None:
        """Raise MeaningChanged, naming all that differs."""
        if self.accept or self.meaning is None or before is None:
            return
        names = sorted(n for n in {*before, *self.meaning} if before.get(n) != self.meaning.get(n))
        if names:
            difference = "; ".join(
                f"{n} was {before.get(n, 'none')}, is {self.meaning.get(n, 'none')}" for n in names
            )
            raise MeaningChanged(
                f"the rows mean something else than in the last feed ({difference}): most would "
                "count as changed; --accept-mapping feeds them all the same"
            )


@dataclass(frozen=True, slots=True)
class ChangePolicies:
    late: ChangePolicy = ChangePolicy.APPEND
    changed: ChangePolicy = ChangePolicy.APPEND
    changed_max: ChangeLimit | None = None

    @property
    def sent(self) -> tuple[Standing, ...]:
        late = (Standing.LATE,) if self.late is ChangePolicy.APPEND else ()
        changed = (Standing.CHANGED,) if self.changed is ChangePolicy.APPEND else ()
        return (Standing.NEW, *late, *changed)

    @property
    def rejected(self) -> tuple[Standing, ...]:
        every = {Standing.LATE, Standing.CHANGED, Standing.STALE, Standing.REPEATED}
        return tuple(sorted(every - set(self.sent)))


def classify_facts(facts: DataFrame, plan: DataFrame) -> DataFrame:
    """Facts (schemas.FACTS) with their `standing`, and `begin`, the session's next number.

    `plan` (schemas.PLAN or NEWEST) is what the group was bound to before. A fact is compared to the
    newest event with its key.
    """
    # Both tables are shuffled by session once, with all that the plan is asked for (job/runtime.py has
    # the settings for it).
    by_session = plan.repartition("session")
    fed = by_session.groupBy("session", "key").agg(
        F.max_by("digest", "sequence").alias("fed"),
        F.max_by("version", "sequence").alias("fed_version"),
    )
    sessions = plan.groupBy("session").agg(
        F.max("place").alias("reached"), (F.max("sequence") + 1).alias("begin")
    )
    same_key = Window.partitionBy("session", "key").orderBy(*order_newest_first())
    return (
        facts.repartition("session")
        .withColumn("copy", F.row_number().over(same_key))
        .join(fed, on=["session", "key"], how="left")
        .join(sessions, on="session", how="left")
        .withColumn("standing", choose_standing())
        .select(*facts.columns, "standing", "begin")
    )


def select_sessions_of(facts: DataFrame, fed: DataFrame) -> DataFrame:
    """Return what was fed to the sessions of these facts, which must be few.

    A summary is sorted by session, so that most of its files need not be read for a few.
    """
    found = facts.select("session").distinct().collect()
    return fed.where(F.col("session").isin([row["session"] for row in found]))


def choose_standing() -> Column:
    return (
        F.when(F.col("copy") > 1, Standing.REPEATED)
        .when(F.col("fed").isNull() & (F.col("place") < F.col("reached")), Standing.LATE)
        .when(F.col("fed").isNull(), Standing.NEW)
        .when(F.col("fed") == digest_event(), Standing.SAME)
        .when(F.col("version") < F.col("fed_version"), Standing.STALE)
        .otherwise(Standing.CHANGED)
    )


def plan_events(classified: DataFrame, group: str, policies: ChangePolicies) -> DataFrame:
    """The facts to be sent as a plan (schemas.PLAN) that continues the sessions' numbers."""
    to_send = classified.where(F.col("standing").isin(*policies.sent))
    return number_facts(to_send, group, begin="begin")


def select_rejects(classified: DataFrame, policies: ChangePolicies) -> DataFrame:
    """The facts that may not become events (schemas.REJECTED_ROWS)."""
    row = F.to_json(F.struct("session", "key", "type", "body"))
    return classified.where(F.col("standing").isin(*policies.rejected)).select(
        row.alias("row"), F.col("standing").alias("reason")
    )


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
    """Sends facts by a manifest: resume unfinished runs, plan, bind, send, mark as sent.

    Under the name in `origin` and the group the manifest keeps the watermark.
    """

    manifest: Manifest
    group: str
    policies: ChangePolicies
    writer: EventWriter
    rejects: str
    console: JobConsole
    origin: SourceOrigin = SourceOrigin()

    def run(self, source: SourceFacts, counts: RowCounts, *, dry: bool = False) -> SendResult:
        """Send what an unfinished run has left, then what is new; a dry run only classifies.

        `counts` are those of the source, which is released before anything new is sent.

        Whatever this raises, and wherever it stops: running it again completes it with the same
        numbers.
        """
        self.manifest.require_exclusive()
        history = self.manifest.read_history()
        self.origin.require_same(history.find_meaning(self.group, self.origin.name))
        resumed = SendCounts() if dry else self.resume(history)
        fed = self.manifest.read_newest(self.group, history)
        if counts.sessions <= SESSIONS_NAMED_MAX:
            fed = select_sessions_of(source.facts, fed)
        # What is unchanged is only counted: of all others, which may be few, the bodies are kept.
        classified = classify_facts(source.facts, fed)
        differing = classified.where(F.col("standing") != Standing.SAME).persist()
        try:
            with self.console.show_progress("comparing with the manifest"):
                rows = differing.groupBy("standing").agg(F.count("*").alias("facts")).collect()
            counted = {row["standing"]: row["facts"] for row in rows}
            counted[Standing.SAME] = counts.events - sum(counted.values())
            found = {standing.value: counted.get(standing, 0) for standing in Standing}
            self.console.log("; ".join(f"{found[standing]} {standing}" for standing in Standing))
            if dry:
                return SendResult(found)
            if self.policies.changed_max is not None:
                known = (Standing.CHANGED, Standing.STALE, Standing.SAME)
                fed_before = sum(found[standing] for standing in known)
                self.policies.changed_max.require(found[Standing.CHANGED], fed_before)
            if any(found[standing] for standing in self.policies.rejected):
                rejects = select_rejects(differing, self.policies)
                rejects.coalesce(1).write.json(self.rejects, mode="append")
            step = self.bind_new(differing, found, source.watermark, history)
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

    def resume(self, history: ManifestHistory) -> SendCounts:
        """Send every run that is bound and perhaps not sent, byte for byte."""
        total = SendCounts()
        for step in history.unsent:
            self.console.log(
                f"run {step.run} of feed {step.feed} is not finished since {step.since}: that feed "
                "has died or is still sending; its events are sent again, without a second effect"
            )
            total += self.send_run(step)
        return total

    def bind_new(
        self,
        classified: DataFrame,
        found: dict[str, int],
        watermark: str | None,
        history: ManifestHistory,
    ) -> ManifestStep | None:
        """Bind the facts that become events to a run; returns None if there are none.

        A run without events is begun all the same if the watermark has moved, to record it.
        """
        count = sum(found[standing] for standing in self.policies.sent)
        if not count and watermark in (None, history.find_watermark(self.group, self.origin.name)):
            return None
        plan = plan_events(classified, self.group, self.policies)
        with self.console.show_progress("binding numbers"):
            step = self.manifest.bind(
                history.newest + 1,
                plan,
                watermark,
                group=self.group,
                source=self.origin.name,
                meaning=self.origin.meaning,
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

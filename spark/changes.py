"""Feed what is new or changed since the last run, by the manifest kept beside the job."""

from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark.intake import Source
from spark.loading import Load
from spark.manifest import History, Manifest, Step
from spark.planning import Policies, Standing, planned, refused, standings
from spark.sending import Counts
from spark.voice import Voice


@dataclass(frozen=True, slots=True)
class Told:
    """How the facts stood, and what was sent; `resumed` are events of an earlier, broken run."""

    standings: dict[str, int] = field(default_factory=dict)
    resumed: int = 0
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class ChangesFeed:
    """One job's way from facts to events: resume, plan, bind, send, settle."""

    manifest: Manifest
    group: str
    policies: Policies
    load: Load
    rejects: str
    voice: Voice

    def run(self, source: Source, *, dry: bool = False) -> Told:
        """Send what a broken run has left, then what is new; a dry run only says what stands how.

        Whatever this raises, wherever it ends: running it again completes it with the same numbers.
        """
        self.manifest.require()
        history = self.manifest.history()
        resumed = Counts() if dry else self.resume(history)
        stood = standings(source.facts, self.manifest.fed(self.group, history)).persist()
        try:
            with self.voice.stage("holding it against the manifest"):
                found = by_standing(stood)
            self.voice.say("; ".join(f"{found[standing]} {standing}" for standing in Standing))
            if dry:
                return Told(found)
            if any(found[standing] for standing in self.policies.refused):
                refused(stood, self.policies).coalesce(1).write.json(self.rejects, mode="append")
            sent = self.send_new(stood, found, source.watermark, history)
            return Told(found, resumed.sent, resumed + sent)
        finally:
            stood.unpersist()

    def resume(self, history: History) -> Counts:
        """Send every run that is bound and perhaps not sent, byte for byte."""
        total = Counts()
        for step in history.unsent:
            self.voice.say(
                f"run {step.run} of feed {step.feed} is not finished since {step.since}: that feed "
                "died, or is at it; its events are sent again, to one effect"
            )
            total += self.send(step)
        return total

    def send_new(
        self, stood: DataFrame, found: dict[str, int], mark: str | None, history: History
    ) -> Counts:
        """Bind and send the facts that become events; no run is begun where nothing moved."""
        count = sum(found[standing] for standing in self.policies.sent)
        if not count and mark in (None, history.watermark):
            return Counts()
        plan = planned(stood, self.group, self.policies)
        with self.voice.stage("binding numbers"):
            step = self.manifest.bind(history.newest + 1, plan, mark)
        self.voice.say(f"run {step.run} is bound to {step.events} events; sending them")
        return self.send(step)

    def send(self, step: Step) -> Counts:
        """Send what a run is bound to, and note that it was."""
        counts = Counts()
        if step.events:
            with self.voice.stage("sending", step.events) as stage:
                load = replace(self.load, progress=stage.address)
                counts = load.send(self.manifest.plan_of(step))
        self.manifest.settle(step)
        return counts


def by_standing(stood: DataFrame) -> dict[str, int]:
    """How many facts stand how."""
    rows = stood.groupBy("standing").agg(F.count("*").alias("facts")).collect()
    found = {row["standing"]: row["facts"] for row in rows}
    return {standing: found.get(standing, 0) for standing in Standing}

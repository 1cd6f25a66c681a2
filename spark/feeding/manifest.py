"""The record of what a job has fed: any folder that Spark can write, on disk or in a lake.

A run of a feed is recorded in three steps, each of which is there completely or not at all: the
files of its plan; the step `planned`, which binds the run to the plan; and the step `sent`, once
everything was sent. A crash before `planned` leaves files that nobody reads. A crash after it
leaves a plan that the next run sends first, byte for byte. So a number is bound to its content
before that content is sent for the first time.

Two feeds may use a manifest at the same time: each writes a plan of its own, and one of them gets
the name of the step `planned`: of a file, or of a document in the account if the manifest's path
begins with `cosmos+` (docs/adr/0096). A feed that begins while another one is sending sends that
plan too and continues from it (docs/adr/feed.md).

Every SUMMARISED_RUNS runs, once all are sent, they are summed up: the newest event of each key goes
to one table, sorted by session, and the steps to one text, which is created last and once. A feed
reads the newest summary and the runs after it; replay and reconcile read the plans, which stay. A
crash before that leaves a table that nobody reads, and that a later summary removes if it can.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from secrets import token_hex
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StructType

from shared.domain.message import SEQUENCE_MAX
from shared.settings import read_body_limit
from spark.feeding.gate import find_refusal
from spark.job.failures import JobRefused
from spark.job.files import SparkFiles
from spark.job.runtime import has_driver, require_driver
from spark.job.settings import read_app_settings
from spark.job.steps import IN_ACCOUNT, AccountSteps, Steps, is_in_account
from spark.schemas import NEWEST, PLAN, TEXT, build_schema
from spark.send.arranging import find_lane
from spark.send.lanes import SentLanes

PLANNED, SENT, SET_ASIDE = "planned", "sent", "set-aside"
RUN_OF_FEED = build_schema(run=IntegerType(), feed=TEXT).fields
# Where the folder of steps would be, files say that they are in the account, and where.
MARK = build_schema(manifest=TEXT, account=TEXT, run=IntegerType())
PATH_NOT_FOUND = "PATH_NOT_FOUND"
SUMMARISED_RUNS = 32
# Any group passes the gate alike; an older release has not recorded a run's own.
UNKNOWN_GROUP = "unknown"
RUN_FOLDER, LANE_FILE = re.compile(r"run=(\d+)"), re.compile(r"lane=(\d+)")


@dataclass(frozen=True, slots=True)
class ManifestStep:
    """A run is bound to its plan (`planned`), `sent`, or `set-aside` by `who`, and `why`.

    Nothing is decided by the time `since`.

    `watermark` is how far the run has read `source` for `group`, and `meaning` what its mapping
    meant (mapping.describe, as JSON). `lanes` is in how many parts the plan is sent. An older
    release recorded none of the four, and its watermarks hold for no source.
    """

    run: int
    feed: str
    step: str
    events: int
    watermark: str | None
    since: str
    group: str | None = None
    source: str | None = None
    meaning: str | None = None
    lanes: int | None = None
    who: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestHistory:
    """All steps in a manifest, the oldest run first.

    Those up to the run `summarised` come from a summary, whose table of newest events is at the
    path `summary`.
    """

    steps: Sequence[ManifestStep] = ()
    summarised: int = 0
    summary: str | None = None

    @property
    def newest(self) -> int:
        """The number of the newest bound run; 0 before the first."""
        return max((step.run for step in self.steps), default=0)

    @property
    def bound(self) -> list[str]:
        return [f"{step.run}/{step.feed}" for step in self.steps if step.step == PLANNED]

    @property
    def unsent(self) -> list[ManifestStep]:
        """The runs that were bound and neither sent nor set aside, the oldest first."""
        ended = {step.run for step in self.steps if step.step in (SENT, SET_ASIDE)}
        return [step for step in self.steps if step.step == PLANNED and step.run not in ended]

    def list_unsent(self, group: str) -> list[ManifestStep]:
        """The unsent runs of a group, and those of which an older release has recorded no group."""
        return [step for step in self.unsent if step.group in (None, group)]

    def divide(
        self, since: datetime | None, until: datetime | None
    ) -> tuple["ManifestHistory", "ManifestHistory"]:
        """The runs bound in [since, until), and the others, each as a history; None is any time.

        What counts is when a run was bound. It may be sent later, by a feed that finds it unsent,
        so that no entry of its events in the journal is older.
        """
        found = {
            step.run
            for step in self.steps
            if step.step == PLANNED
            and (since is None or datetime.fromisoformat(step.since) >= since)
            and (until is None or datetime.fromisoformat(step.since) < until)
        }
        return (
            replace(self, steps=[step for step in self.steps if step.run in found]),
            replace(self, steps=[step for step in self.steps if step.run not in found]),
        )

    def find_watermark(self, group: str, source: str) -> str | None:
        """Return how far sent runs have read a source for a group; None before the first."""
        own = (s for s in reversed(self.steps) if (s.group, s.source) == (group, source))
        marks = (step.watermark for step in own if step.step == SENT)
        return next((mark for mark in marks if mark is not None), None)

    def find_meaning(self, group: str, source: str) -> dict[str, str] | None:
        """Return what the mapping meant in a group's and source's newest bound run, if recorded."""
        own = (s for s in reversed(self.steps) if (s.group, s.source) == (group, source))
        found = next((step.meaning for step in own if step.meaning is not None), None)
        return None if found is None else dict(json.loads(found))


STEP_FIELDS = {each.name for each in fields(ManifestStep)}


@dataclass(frozen=True)
class Manifest:
    """The manifest at a path (a folder, or a URL that Spark can write), as one feed uses it.

    With `cosmos+` before the path its steps are documents in the account of the app settings, which
    are those of the environment and `settings` over them; otherwise they are files at the path.
    """

    spark: SparkSession
    path: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str = field(default_factory=lambda: token_hex(4))

    @property
    def feed(self) -> str:
        """The name of this feed in the manifest: Spark's application id, and a random token.

        The token is needed because an application may run two feeds, and two machines may give
        their applications the same id.
        """
        return f"{self.spark.conf.get('spark.app.id')}-{self.token}"

    @property
    def is_in_account(self) -> bool:
        return is_in_account(self.path)

    @property
    def root(self) -> str:
        """The folder, or URL, of the tables."""
        return self.path.removeprefix(IN_ACCOUNT).rstrip("/")

    @cached_property
    def steps(self) -> Steps:
        """The steps, files or documents; raises JobRefused if they were begun elsewhere."""
        if not self.is_in_account:
            require_driver(self.spark)
            return SparkFiles(self.spark)
        account = AccountSteps.of(read_app_settings(self.settings), self.root, self.root)
        marks = self.read_marks()
        account = replace(account, name=find_name(marks, account.name, account.account, self.path))
        if not marks and account.list_names(f"{self.root}/steps"):
            raise JobRefused(
                f"{account.account} has the steps of {self.root}, but nothing in that folder says "
                "so: it was removed, or is another one. Bring it back, or begin a manifest with "
                "another path and another group, because the numbers of what was fed are used"
            )
        return account

    def read_marks(self) -> list[Row]:
        """The lines (MARK) of files about steps: of where they are, or of steps that are files."""
        reader = self.spark.read.schema(MARK).option("recursiveFileLookup", "true").format("json")
        return self.load(reader, MARK, [f"{self.root}/steps"]).collect()

    def leave_mark(self) -> None:
        """Say in the folder where its steps are, before there is any.

        Of two feeds that do so at the same time, under two names, one at least sees both.
        """
        steps = self.steps
        if not isinstance(steps, AccountSteps) or self.read_marks():
            return
        mark = (F.lit(steps.name).alias("manifest"), F.lit(steps.account).alias("account"))
        self.spark.range(0, 1, 1, 1).select(*mark).write.json(f"{self.root}/steps", mode="append")
        find_name(self.read_marks(), steps.name, steps.account, self.path)

    def read_history(self) -> ManifestHistory:
        """Every step until now. Raises JobRefused for steps without a feed's name."""
        before = self.read_summary()
        runs = self.list_runs("steps", before.summarised)
        texts = self.steps.read_texts([f"{self.root}/steps/run={run}" for run in runs])
        found = [json.loads(text) for text in texts]
        if any("feed" not in step for step in found):
            raise JobRefused(f"{self.path} has runs without a feed; use a new one")
        # A later release may say more.
        known = [{name: step[name] for name in step.keys() & STEP_FIELDS} for step in found]
        steps = [ManifestStep(**{"watermark": None} | step) for step in known]
        steps.sort(key=lambda step: (step.run, step.step))
        return replace(before, steps=(*before.steps, *steps))

    def read_summary(self) -> ManifestHistory:
        """The history up to the newest summary; empty before the first."""
        runs = self.list_runs("summaries")
        if not runs:
            return ManifestHistory()
        name = f"{self.root}/summaries/run={runs[-1]}/summary.json"
        document = json.loads(self.steps.read_text(name))
        # All runs of a summary are sent.
        planned = [ManifestStep(**step) for step in document["planned"]]
        steps = [each for step in planned for each in (step, replace(step, step=SENT))]
        return ManifestHistory(steps, runs[-1], self.locate_summary(runs[-1], document["feed"]))

    def list_runs(self, table: str, after: int = 0) -> list[int]:
        """The numbers above `after` of the runs in a folder of steps, the lowest first."""
        names = self.steps.list_names(f"{self.root}/{table}", after)
        found = [RUN_FOLDER.fullmatch(name) for name in names if not name.startswith((".", "_"))]
        if None in found:
            raise JobRefused(
                f"{self.path} is no manifest: {table} holds other files. If its steps are in the "
                f"account, it is {IN_ACCOUNT}{self.path}"
            )
        runs = sorted(int(match[1]) for match in found if match is not None)
        return [run for run in runs if run > after]

    def read_fed(self, group: str, history: ManifestHistory) -> DataFrame:
        """All that the runs in a history are bound to for a group (schemas.PLAN)."""
        written = self.read_table("plan", "parquet", StructType([*PLAN.fields, *RUN_OF_FEED]))
        is_bound = F.concat_ws("/", "run", "feed").isin(history.bound)
        return written.where(is_bound & (F.col("group") == group)).select(*PLAN.names)

    def read_newest(self, history: ManifestHistory) -> DataFrame:
        """Return what all groups are bound to, to compare facts with (schemas.NEWEST).

        A key may be in it several times; what has its highest number is its newest event.
        """
        later = [s for s in history.steps if s.step == PLANNED and s.run > history.summarised]
        plans = [self.locate_plan(step.run, step.feed) for step in later]
        found = self.read_table("plan", "parquet", PLAN, plans).select(*NEWEST.names)
        if history.summary is None:
            return found
        return found.unionByName(self.spark.read.schema(NEWEST).parquet(history.summary))

    def summarise(self) -> None:
        """Sum up the runs, if there are enough since the last summary and all are sent.

        Another feed may do the same at the same time; one of the two summaries is removed.
        """
        before = max(self.list_runs("summaries"), default=0)
        run = max(self.list_runs("steps", before), default=before)
        if run - before < SUMMARISED_RUNS:
            return
        history = self.read_history()
        if history.unsent:
            return
        run = history.newest
        place = self.locate_summary(run, self.feed)
        newest = (
            self.read_newest(history)
            .groupBy("session", "group", "key")
            .agg(
                F.max("place").alias("place"),
                F.max_by("digest", "sequence").alias("digest"),
                F.max_by("version", "sequence").alias("version"),
                F.max("sequence").alias("sequence"),
            )
        )
        in_order = newest.select(*NEWEST.names).repartitionByRange("session")
        in_order.sortWithinPartitions("session").write.parquet(place, mode="overwrite")
        planned = [asdict(step) for step in history.steps if step.step == PLANNED]
        text = json.dumps({"feed": self.feed, "planned": drop_old_meanings(planned)})
        if not self.steps.create(f"{self.root}/summaries/run={run}/summary.json", text):
            self.remove_table(place)
        # The summary before this one stays for feeds that are reading it.
        found = {*self.list_runs("summaries"), *self.list_runs("summary")}
        for old in sorted(run for run in found if run < history.summarised):
            self.remove_table(f"{self.root}/summary/run={old}")
            self.steps.remove(f"{self.root}/summaries/run={old}")

    def remove_table(self, place: str) -> None:
        if self.is_in_account:
            # Spark can write on any file system. What it cannot do is to remove: this is empty.
            self.spark.range(0).write.parquet(place, mode="overwrite")
        else:
            self.steps.remove(place)

    def read_plan(self, step: ManifestStep) -> DataFrame:
        return self.spark.read.schema(PLAN).parquet(self.locate_plan(step.run, step.feed))

    def write_plan(self, run: int, plan: DataFrame) -> int:
        """Write the plan of a run; returns how many events can be read of it.

        Raises JobRefused if a session has used up its numbers.
        """
        if run == 1:
            self.leave_mark()
        place = self.locate_plan(run, self.feed)
        plan.write.parquet(place, mode="overwrite")
        written = self.spark.read.schema(PLAN).parquet(place)
        events, highest = written.agg(F.count("*"), F.max("sequence")).collect()[0]
        if events and highest > SEQUENCE_MAX:
            raise JobRefused(f"a session has used its {SEQUENCE_MAX + 1} numbers: use a new group")
        return int(events)

    def bind(
        self,
        run: int,
        events: int,
        watermark: str | None,
        *,
        group: str | None = None,
        source: str | None = None,
        meaning: Mapping[str, str] | None = None,
        lanes: int | None = None,
    ) -> ManifestStep:
        """Bind a run to the plan that was written, which must be sent next, in so many lanes.

        Raises JobRefused if another feed has bound the run since the history was read.
        """
        text = None if meaning is None else json.dumps(dict(meaning))
        about = (watermark, format_now(), group, source, text, lanes)
        planned = ManifestStep(run, self.feed, PLANNED, events, *about)
        if not self.write_step(planned):
            self.require_own(run)
        return planned

    def require_own(self, run: int) -> None:
        """Raise JobRefused if another feed has bound a run.

        The name can also be taken because our own write succeeded and its answer was lost.
        """
        steps = self.read_history().steps
        first = next((s for s in steps if (s.run, s.step) == (run, PLANNED)), None)
        if first is None:
            raise JobRefused(f"{self.path}: the step of run {run} cannot be read")
        if first.feed != self.feed:
            raise JobRefused(
                f"{self.path} is in use: the feed {first.feed} has bound run {run} at "
                f"{first.since}, after this one had read it; its own plan was not sent, run again"
            )

    def mark_sent(self, planned: ManifestStep) -> None:
        """Record that all of a run was sent; another feed may have recorded it already."""
        self.write_step(replace(planned, step=SENT, since=format_now()))
        # In the account another feed of the run may still count them; the store removes them.
        if not self.is_in_account:
            self.forget_lanes(planned)

    def forget_lanes(self, planned: ManifestStep) -> None:
        self.steps.remove(self.locate_lanes(planned))

    def mark_lane_sent(self, planned: ManifestStep, lane: int) -> None:
        """Record that a lane of a run was sent. Any number of feeds may do so."""
        self.steps.create(f"{self.locate_lanes(planned)}/lane={lane}", "")

    def open_lanes(self, planned: ManifestStep, known: Collection[int]) -> SentLanes | None:
        """The lanes that tasks record themselves, besides those that are known; None for files."""
        if not isinstance(self.steps, AccountSteps):
            return None
        return SentLanes(self.steps, self.locate_lanes(planned), frozenset(known))

    def list_sent_lanes(self, planned: ManifestStep) -> list[int]:
        """The lanes of an unsent run that are known to be sent."""
        names = self.steps.list_names(self.locate_lanes(planned))
        found = (LANE_FILE.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match is not None)

    def set_aside(self, planned: ManifestStep, who: str, why: str) -> tuple[int, int]:
        """Record that a run is not sent any more: who says so, why, and what of it was sent.

        Its numbers stay bound. `aside/run=N` of the manifest has a line of JSON for each session:
        its first and last number, whether all of them are known to be sent, and in what words
        sending would refuse one of them. Returns how many events are known to be sent, and how many
        there are.
        """
        done = self.list_sent_lanes(planned) if planned.lanes else []
        is_sent = find_lane(planned.lanes or 1).isin(done) if done else F.lit(col=False)
        most = read_body_limit(read_app_settings(self.settings))
        refusal = find_refusal(planned.group or UNKNOWN_GROUP, most)
        plan = self.read_plan(planned).withColumn("refusal", refusal)
        by_session = plan.groupBy("session", is_sent.alias("sent")).agg(
            F.min("sequence").alias("first"),
            F.max("sequence").alias("last"),
            F.count("*").alias("events"),
            F.min("refusal").alias("refusal"),
        )
        place = f"{self.root}/aside/run={planned.run}"
        by_session.orderBy("session").coalesce(1).write.json(place, mode="overwrite")
        written = self.spark.read.schema("sent boolean, events long").json(place)
        counts = {
            row["sent"]: row[1] for row in written.groupBy("sent").agg(F.sum("events")).collect()
        }
        self.write_step(replace(planned, step=SET_ASIDE, since=format_now(), who=who, why=why))
        return counts.get(True, 0), sum(counts.values())

    def locate_lanes(self, planned: ManifestStep) -> str:
        return f"{self.root}/lanes/run={planned.run}"

    def write_step(self, step: ManifestStep) -> bool:
        """Write a step as a line of text; False if another one has been written before."""
        document = {name: value for name, value in asdict(step).items() if value is not None}
        name = f"{self.root}/steps/run={step.run}/step={step.step}/step.json"
        return self.steps.create(name, json.dumps(document) + "\n")

    def locate_plan(self, run: int, feed: str) -> str:
        return f"{self.root}/plan/run={run}/feed={feed}"

    def locate_summary(self, run: int, feed: str) -> str:
        return f"{self.root}/summary/run={run}/feed={feed}"

    def require_exclusive(self) -> None:
        """Raise JobRefused unless a step is given to one feed, and all tasks read the plans."""
        if not self.is_in_account:
            SparkFiles(self.spark).require_exclusive(self.path)
        elif has_driver(self.spark):
            SparkFiles(self.spark).require_shared(self.root)

    def read_table(
        self, table: str, form: str, schema: StructType, paths: Sequence[str] | None = None
    ) -> DataFrame:
        """A table of the manifest, or these folders of it; empty if nothing was written yet."""
        root = f"{self.root}/{table}"
        reader = self.spark.read.format(form).schema(schema).option("basePath", root)
        return self.load(reader, schema, [root] if paths is None else paths)

    def load(self, reader: DataFrameReader, schema: StructType, paths: Sequence[str]) -> DataFrame:
        """These folders; an empty table if there are none yet."""
        try:
            if paths:
                found = reader.load(list(paths))
                # Over Spark Connect a path is looked for no earlier.
                _ = found.schema
                return found
        except AnalysisException as error:
            if error.getCondition() != PATH_NOT_FOUND:
                refusal = f"{self.path} is no manifest: {error.getCondition()}"
                raise JobRefused(refusal) from None
        # A table made from Python rows, even from none, would start a Python worker to read them.
        nothing = (F.lit(None).cast(each.dataType).alias(each.name) for each in schema)
        return self.spark.range(0).select(*nothing)


def find_name(marks: Sequence[Row], name: str, account: str, path: str) -> str:
    """The name under which an account has the steps of a manifest: that of its marks, or its own.

    Raises JobRefused if its steps are files, in another account, or were begun under two names.
    """
    if any(mark["run"] is not None for mark in marks):
        raise JobRefused(f"the steps of {path} are files: leave out {IN_ACCOUNT!r}")
    found = {(mark["manifest"], mark["account"]) for mark in marks} or {(name, account)}
    if len(found) > 1:
        raise JobRefused(
            f"{path} was begun by two feeds at the same time that named it differently: "
            f"{', '.join(sorted(each for each, _ in found))}. Remove all files but one in its "
            "folder steps"
        )
    name, begun_in = found.pop()
    if begun_in != account:
        raise JobRefused(
            f"the steps of {path} are in {begun_in}, and not in {account}, which the app settings "
            "name: name that account again, or, where its documents were moved, correct the file "
            "in the folder steps"
        )
    return name


def drop_old_meanings(planned: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps as documents, where only the newest of a group and source keeps its meaning."""
    newest = {(s["group"], s["source"]): s["run"] for s in planned if s["meaning"] is not None}
    return [
        step
        if newest.get((step["group"], step["source"])) == step["run"]
        else step | {"meaning": None}
        for step in planned
    ]


def format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

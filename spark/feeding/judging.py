"""Judge facts by what was fed before: which are new, late or changed. Pure DataFrame functions."""

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from shared.domain.message import BODY_BYTES_MAX
from spark.feeding.config import ChangePolicy, DeletedPolicy
from spark.feeding.gate import find_refusal
from spark.feeding.numbering import digest_event, number_facts
from spark.read.facts import order_newest_first


class Standing(StrEnum):
    NEW = "new"
    LATE = "late"
    CHANGED = "changed"
    SAME = "unchanged"
    DELETED = "deleted"
    STALE = "older than what was fed"
    REPEATED = "repeated key"
    UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class ChangePolicies:
    late: ChangePolicy = ChangePolicy.APPEND
    changed: ChangePolicy = ChangePolicy.APPEND
    deleted: DeletedPolicy | None = None
    # What the app's queues take, so that what is larger gets no number.
    body_bytes_max: int = BODY_BYTES_MAX

    @property
    def sent(self) -> tuple[Standing, ...]:
        late = (Standing.LATE,) if self.late is ChangePolicy.APPEND else ()
        changed = (Standing.CHANGED,) if self.changed is ChangePolicy.APPEND else ()
        deleted = (Standing.DELETED,) if self.deleted is DeletedPolicy.SEND else ()
        return (Standing.NEW, *late, *changed, *deleted)

    @property
    def rejected(self) -> tuple[Standing, ...]:
        every = {Standing.LATE, Standing.CHANGED, Standing.STALE, Standing.REPEATED}
        return tuple(sorted(every - set(self.sent)))


def classify_facts(
    facts: DataFrame, plan: DataFrame, deletion: Column | None = None, *, finds_gone: bool = False
) -> DataFrame:
    """Facts (schemas.FACTS) with their `standing`, and `begin`, the session's next number.

    `plan` (schemas.PLAN or NEWEST) is what the group was bound to before. A fact is compared to the
    newest event with its key. If that is a `deletion` (SourceFacts), the key is not known any more.
    With `finds_gone` the facts are all that there are, and each key that was fed and is gone is
    among the result, as a fact that says so and comes after all others of its session.
    """
    past, says_deleted = plan, F.expr("false")
    if deletion is not None:
        names = (name for name in plan.columns if name not in ("type", "body"))
        past = plan.select(*names, deletion.alias("gone")).select("*", "gone.*")
        says_deleted = F.col("digest") == digest_event()
    stands = ~says_deleted
    # Both tables are shuffled by session once, with all that the plan is asked for: see the
    # settings in job/runtime.py.
    by_session = past.repartition("session")
    fed = by_session.groupBy("session", "key").agg(
        F.max_by(F.when(stands, F.col("digest")), "sequence").alias("fed"),
        F.max_by("version", "sequence").alias("fed_version"),
    )
    sessions = past.groupBy("session").agg(
        F.max(F.when(stands, F.col("place"))).alias("reached"),
        (F.max("sequence") + 1).alias("begin"),
    )
    same_key = Window.partitionBy("session", "key").orderBy(*order_newest_first())
    classified = (
        facts.repartition("session")
        .withColumn("copy", F.row_number().over(same_key))
        .join(fed, on=["session", "key"], how="left")
        .join(sessions, on="session", how="left")
        .withColumn("standing", choose_standing())
        .select(*facts.columns, "standing", "begin")
    )
    if not finds_gone:
        return classified
    nothing = F.lit(None).cast("string")
    unsaid = F.struct(nothing.alias("type"), nothing.alias("body"))
    last = facts.groupBy("session").agg(F.max("place").alias("last"))
    gone = (
        fed.where("fed is not null")
        .join(facts.select("session", "key"), on=["session", "key"], how="left_anti")
        .join(sessions, on="session")
        .join(last, on="session", how="left")
        .select("*", (unsaid if deletion is None else deletion).alias("gone"))
        .select("*", "gone.*")
        .withColumn("place", F.array_append(F.greatest("reached", "last"), F.lit("")))
        .withColumns({"time": nothing, "version": nothing})
        .withColumn("standing", F.lit(Standing.DELETED))
    )
    return classified.unionByName(gone.select(*classified.columns))


def choose_standing() -> Column:
    return (
        F.when(F.col("copy") > 1, Standing.REPEATED)
        .when(F.col("fed").isNull() & (F.col("place") < F.col("reached")), Standing.LATE)
        .when(F.col("fed").isNull(), Standing.NEW)
        .when(F.col("fed") == digest_event(), Standing.SAME)
        .when(F.col("version") < F.col("fed_version"), Standing.STALE)
        .otherwise(Standing.CHANGED)
    )


def judge_as_new(facts: DataFrame) -> DataFrame:
    """Facts as `classify_facts` has them where there is no manifest: all are new."""
    return facts.withColumn("standing", F.lit(Standing.NEW)).withColumn("begin", F.lit(0))


def plan_events(classified: DataFrame, group: str, policies: ChangePolicies) -> DataFrame:
    """The facts to be sent as a plan (schemas.PLAN) that continues the sessions' numbers.

    What sending refuses is not in it (select_unsendable has it).
    """
    to_send = classified.where(F.col("standing").isin(*policies.sent))
    refusal = find_refusal(group, policies.body_bytes_max)
    sendable = to_send.where(refusal.isNull())
    return number_facts(sendable, group, begin="begin")


def select_unsendable(classified: DataFrame, group: str, policies: ChangePolicies) -> DataFrame:
    """The facts that would be sent and that sending refuses, with its words as `refusal`."""
    to_send = classified.where(F.col("standing").isin(*policies.sent))
    refusal = find_refusal(group, policies.body_bytes_max)
    return to_send.withColumn("refusal", refusal).where("refusal is not null")


def select_rejects(classified: DataFrame, policies: ChangePolicies) -> DataFrame:
    """The facts that may not become events (schemas.REJECTED_ROWS)."""
    rejected = classified.where(F.col("standing").isin(*policies.rejected))
    return format_rejects(rejected, F.col("standing"))


def format_rejects(facts: DataFrame, reason: Column) -> DataFrame:
    row = F.to_json(F.struct("session", "key", "type", "body", "time"))
    return facts.select(row.alias("row"), reason.alias("reason"))

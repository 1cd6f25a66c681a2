"""What is new since the last feed: facts held against a manifest. Pure DataFrame functions."""

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.numbering import content_digest, numbered


class Standing(StrEnum):
    """How a fact stands to what was fed before."""

    NEW = "new"
    LATE = "late"
    CHANGED = "changed"
    SAME = "unchanged"
    REPEATED = "repeated key"


class Policy(StrEnum):
    """What becomes of a late or a changed fact.

    APPEND sends it as the session's next event, after all that was sent; REJECT makes it a reject.
    """

    APPEND = "append"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Policies:
    """A policy for facts whose turn is over, and one for facts that now say something else."""

    late: Policy = Policy.APPEND
    changed: Policy = Policy.APPEND

    @property
    def sent(self) -> tuple[Standing, ...]:
        """The standings whose facts become events."""
        late = (Standing.LATE,) if self.late is Policy.APPEND else ()
        changed = (Standing.CHANGED,) if self.changed is Policy.APPEND else ()
        return (Standing.NEW, *late, *changed)

    @property
    def refused(self) -> tuple[Standing, ...]:
        """The standings whose facts become rejects."""
        every = {Standing.LATE, Standing.CHANGED, Standing.REPEATED}
        return tuple(sorted(every - set(self.sent)))


def standings(facts: DataFrame, plan: DataFrame) -> DataFrame:
    """Facts (schemas.FACTS) with `standing` and `begin`, the session's next number.

    `plan` (schemas.PLAN) is what the group was bound to before. The newest event of a key counts.
    """
    fed = plan.groupBy("session", "key").agg(F.max_by("digest", "sequence").alias("fed"))
    sessions = plan.groupBy("session").agg(
        F.max("place").alias("reached"), (F.max("sequence") + 1).alias("begin")
    )
    same_key = Window.partitionBy("session", "key").orderBy("place", "body")
    return (
        facts.withColumn("copy", F.row_number().over(same_key))
        .join(fed, on=["session", "key"], how="left")
        .join(sessions, on="session", how="left")
        .withColumn("standing", standing())
        .select(*facts.columns, "standing", "begin")
    )


def standing() -> Column:
    """A fact's standing, from the first copy of its key and what was fed of it."""
    return (
        F.when(F.col("copy") > 1, Standing.REPEATED)
        .when(F.col("fed").isNull() & (F.col("place") < F.col("reached")), Standing.LATE)
        .when(F.col("fed").isNull(), Standing.NEW)
        .when(F.col("fed") != content_digest(), Standing.CHANGED)
        .otherwise(Standing.SAME)
    )


def planned(stood: DataFrame, group: str, policies: Policies) -> DataFrame:
    """The facts to be sent as a plan (schemas.PLAN) that goes on from the sessions' numbers."""
    return numbered(stood.where(F.col("standing").isin(*policies.sent)), group, begin="begin")


def refused(stood: DataFrame, policies: Policies) -> DataFrame:
    """The facts that may not become events (schemas.REFUSED_ROWS)."""
    row = F.to_json(F.struct("session", "key", "type", "body"))
    return stood.where(F.col("standing").isin(*policies.refused)).select(
        row.alias("row"), F.col("standing").alias("reason")
    )

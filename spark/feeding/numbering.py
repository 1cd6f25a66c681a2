"""Number facts and derive ids, by pure DataFrame functions: equal inputs give equal bytes."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.schemas import PLAN


def number_facts(facts: DataFrame, group: str, begin: str | None = None) -> DataFrame:
    """Facts as a plan (schemas.PLAN), numbered per session without gaps, in order of `place`.

    Numbers begin at 0, or at what the column named by `begin` holds for the session.
    """
    # Body and key decide between facts with the same place, so that the order is always the same.
    in_order = Window.partitionBy("session").orderBy("place", "body", "key")
    first = F.lit(0) if begin is None else F.coalesce(F.col(begin), F.lit(0))
    return (
        facts.withColumn("sequence", (F.row_number().over(in_order) - 1 + first).cast("long"))
        .withColumn("group", F.lit(group))
        .withColumn("id", derive_event_id())
        .withColumn("digest", digest_event())
        .select(*PLAN.names)
    )


def derive_event_id() -> Column:
    """The id of an event, from its group, session and number alone: the same in every run."""
    identity = F.concat_ws("\n", "group", "session", F.col("sequence").cast("string"))
    return F.substring(F.sha2(identity, 256), 1, 32)


def digest_event() -> Column:
    """The digest of an event as the journal computes it: SHA-256 of type, a zero byte and body."""
    content = F.concat(F.encode("type", "UTF-8"), F.unhex(F.lit("00")), F.encode("body", "UTF-8"))
    return F.sha2(content, 256)

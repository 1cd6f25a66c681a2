"""An event and what the journal shows under its id: what the two disagree about.

Pure DataFrame functions. An effect is an event that a completed entry covers. An event of a faulted
or skipped entry has a named end but no effect; it is reported apart from what is missing.
"""

from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

COMPLETED = "completed"
ENDED_WITHOUT_EFFECT = ("faulted", "skipped")


class Finding(StrEnum):
    """The ways in which source and journal can disagree."""

    MISSING = "missing"
    FAULTED = "faulted or skipped"
    EXTRA = "extra"
    WRONG_SESSION = "wrong session"
    REPEATED = "repeated"
    OUT_OF_ORDER = "out of order"
    DIFFERENT = "different content"
    TWICE = "in the source twice"


def compared(wanted: DataFrame, covered: DataFrame) -> DataFrame:
    """Each event with `seen`: its ends in the journal, of whichever session, the first one first.

    What was seen of no event stands in a row whose event is null.
    """
    end = F.struct("position", "place", "session", "status", "sequence", "digest")
    ended = covered.where(F.col("status").isin(COMPLETED, *ENDED_WITHOUT_EFFECT))
    seen = ended.groupBy("id").agg(F.array_sort(F.collect_list(end)).alias("seen"))
    both = wanted.join(seen, on="id", how="full_outer")
    return both.withColumn("seen", F.coalesce("seen", F.array()))


def placed(both: DataFrame) -> DataFrame:
    """The same with `after`: the highest number whose effect came before this one's."""
    own = F.get(effects_at_home(), F.lit(0))
    place = F.when(own.isNotNull(), F.struct(own["position"], own["place"]))
    # What belongs to no session is in order with itself.
    of_session = Window.partitionBy(F.coalesce("session", "id")).orderBy("own_place")
    before = of_session.rowsBetween(Window.unboundedPreceding, -1)
    number = F.when(F.col("own_place").isNotNull(), F.col("sequence"))
    return both.withColumn("own_place", place).withColumn("after", F.max(number).over(before))


def effects_at_home() -> Column:
    """The effects of an event that are in its session."""
    return F.filter("seen", lambda end: is_effect(end) & is_at_home(end))


def is_effect(end: Column) -> Column:
    """Whether an end is a completed entry's."""
    return end["status"] == COMPLETED


def is_at_home(end: Column) -> Column:
    """Whether an end is in the session of its event; without an event it never is."""
    return end["session"].eqNullSafe(F.col("session"))


def is_as_said(end: Column) -> Column:
    """Whether an end has the number and the content of its event."""
    return (end["sequence"] == F.col("sequence")) & (end["digest"] == F.col("digest"))


def is_as_expected() -> Column:
    """One effect, where it belongs, with the number and content of its event."""
    only = F.get("seen", F.lit(0))
    good = (F.size("seen") == 1) & is_effect(only) & is_at_home(only) & is_as_said(only)
    return F.coalesce(good, F.lit(col=False))


def is_out_of_order() -> Column:
    """Whether an event took effect after one with a higher number."""
    late = F.col("own_place").isNotNull() & (F.col("sequence") < F.col("after"))
    return F.coalesce(late, F.lit(col=False))


def disagreements() -> Column:
    """All that an event and what was seen of it disagree about, as structs like FINDINGS."""
    own = effects_at_home()
    elsewhere = F.filter("seen", lambda end: is_effect(end) & ~is_at_home(end))
    other = F.filter(own, lambda end: ~is_as_said(end))
    # slice counts from 1 and takes no length of zero.
    again = F.when(F.size(own) > 1, F.slice(own, 2, F.size(own))).otherwise(F.array())
    late = F.when(is_out_of_order(), F.slice(own, 1, 1)).otherwise(F.array())
    return F.concat(
        without_effect(F.size(own) == 0),
        F.transform(elsewhere, stray),
        F.transform(again, lambda end: at(Finding.REPEATED, end, standing_at(end))),
        F.transform(late, lambda end: at(Finding.OUT_OF_ORDER, end, behind(end))),
        F.transform(other, lambda end: at(Finding.DIFFERENT, end, otherwise(end))),
    )


def without_effect(is_lost: Column) -> Column:
    """An event with no effect in its session: it ended without one, or it is missing."""
    ends = F.filter("seen", lambda end: ~is_effect(end) & is_at_home(end))
    ended = F.get(ends, F.lit(0))
    finding = F.when(ended.isNull(), Finding.MISSING).otherwise(Finding.FAULTED)
    detail = F.when(ended.isNotNull(), F.concat(ended["status"], F.lit(" "), standing_at(ended)))
    is_event = F.col("session").isNotNull()
    lost = F.array(found(finding, F.col("session"), F.col("sequence"), detail))
    return F.when(is_event & is_lost, lost).otherwise(F.array())


def stray(end: Column) -> Column:
    """An effect where its event does not belong, or of no event at all."""
    home = F.concat(F.lit("belongs to session "), F.col("session"))
    is_event = F.col("session").isNotNull()
    finding = F.when(is_event, Finding.WRONG_SESSION).otherwise(Finding.EXTRA)
    return found(finding, end["session"], end["sequence"], F.coalesce(home, standing_at(end)))


def at(finding: Finding, end: Column, detail: Column) -> Column:
    """A finding about an effect of an event, under the event's number."""
    return found(F.lit(finding), end["session"], F.col("sequence"), detail)


def found(finding: Column, session: Column, sequence: Column, detail: Column) -> Column:
    """A row of schemas.FINDINGS about the event or effect at hand."""
    return F.struct(
        finding.alias("finding"),
        session.alias("session"),
        sequence.alias("sequence"),
        F.col("id").alias("id"),
        detail.alias("detail"),
    )


def standing_at(end: Column) -> Column:
    """Where an end stands in its journal."""
    return F.concat(F.lit("at position "), end["position"].cast("string"))


def behind(end: Column) -> Column:
    """Where an effect stands that came too late, and after what."""
    return F.concat(standing_at(end), F.lit(", after number "), F.col("after").cast("string"))


def otherwise(end: Column) -> Column:
    """In what an effect differs from its event; the number before the content."""
    number = F.concat(F.lit("as number "), end["sequence"].cast("string"))
    digests = (F.substring(digest, 1, 8) for digest in (end["digest"], F.col("digest")))
    content = F.format_string("digest %s..., not %s...", *digests)
    return F.when(end["sequence"] == F.col("sequence"), content).otherwise(number)

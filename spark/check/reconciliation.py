"""Compare events with the journal: what differs, and the counts of each session.

Pure DataFrame functions. The outcome of an event is an entry of the journal that covers the event
and has ended. An effect is the outcome of a completed entry. The outcome of a faulted or skipped
entry is no effect; such an event is reported as faulted or skipped, and not as missing. An event
that is parked in a session that is halted is reported as waiting behind the fault.
"""

from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark.feeding.numbering import digest_event
from spark.schemas import LONG, TEXT, build_schema

COMPLETED = "completed"
ENDED_WITHOUT_EFFECT = ("faulted", "skipped")
PARKED = "parked"

# A difference between source and journal: its kind, the event it concerns, and details for people.
FINDINGS = build_schema(finding=TEXT, session=TEXT, sequence=LONG, id=TEXT, detail=TEXT)


class FindingKind(StrEnum):
    MISSING = "missing"
    FAULTED = "faulted or skipped"
    WAITING = "waiting behind a fault"
    EXTRA = "extra"
    WRONG_SESSION = "wrong session"
    REPEATED = "repeated"
    OUT_OF_ORDER = "out of order"
    DIFFERENT = "different content"
    TWICE = "in the source twice"


def find_differences(events: DataFrame, entries: DataFrame, group: str) -> DataFrame:
    """Every difference (FINDINGS) but TWICE, which concerns the source alone.

    An effect in a session that is not its event's is reported there as in the wrong session, and
    its event is reported as missing from its own session.
    """
    expected = events.select("session", "id", "sequence", digest_event().alias("digest"))
    matched = match_outcomes(expected, list_processed(entries, group))
    ordered = add_preceding_number(matched)
    differing = ordered.where(~is_as_expected() | is_out_of_order())
    return differing.select(F.inline(list_findings())).select(*FINDINGS.names)


def leave_out(rows: DataFrame, events: DataFrame) -> DataFrame:
    """The rows (findings or effects) that concern none of these events."""
    return rows.join(events.select("id"), on="id", how="left_anti").select(*rows.columns)


def list_effects(entries: DataFrame, group: str) -> DataFrame:
    """One row for each effect under the group's name, with its session and the event's id."""
    return list_processed(entries, group).where(F.col("status") == COMPLETED)


def count_by_session(events: DataFrame, effects: DataFrame, found: DataFrame) -> DataFrame:
    """Count for each session: events expected, effects in the journal, and each finding."""
    by_session = effects.groupBy("session")
    counts = found.groupBy("session").pivot("finding", list(FindingKind)).count()
    return (
        events.groupBy("session")
        .agg(F.count("*").alias("expected"))
        .join(by_session.agg(F.count("*").alias("effects")), on="session", how="full_outer")
        .join(counts, on="session", how="full_outer")
        .na.fill(0)
    )


def list_processed(entries: DataFrame, group: str) -> DataFrame:
    """One row for each message of the group that an entry covers, with its place in the journal.

    `halt` is where the fault is that holds its session now, or null.
    """
    position = F.col("id").cast("long")
    halts = entries.groupBy("session").agg(F.max_by("halt.at", position).alias("halt"))
    each = entries.select(
        "session",
        position.alias("position"),
        "status",
        F.posexplode("identities").alias("place", "message"),
    )
    of_group = each.where(F.col("message.group") == group).join(halts, on="session")
    columns = ("session", "position", "place", "status", "halt")
    return of_group.select(*columns, "message.id", "message.sequence", "message.digest")


def match_outcomes(expected: DataFrame, processed: DataFrame) -> DataFrame:
    """Each event with `outcomes`: those under its id in any session, the first one first.

    Outcomes without an event are in a row whose other columns are null. That a message waits behind
    a fault counts as an outcome.
    """
    outcome = F.struct("position", "place", "session", "status", "sequence", "digest", "halt")
    waits = (F.col("status") == PARKED) & F.col("halt").isNotNull()
    ended = processed.where(F.col("status").isin(COMPLETED, *ENDED_WITHOUT_EFFECT) | waits)
    by_id = ended.groupBy("id").agg(F.array_sort(F.collect_list(outcome)).alias("outcomes"))
    matched = expected.join(by_id, on="id", how="full_outer")
    return matched.withColumn("outcomes", F.coalesce("outcomes", F.array()))


def add_preceding_number(matched: DataFrame) -> DataFrame:
    """Add `after`: the highest number whose effect is before this event's effect in its session."""
    own = F.get(select_own_effects(), F.lit(0))
    place = F.when(own.isNotNull(), F.struct(own["position"], own["place"]))
    # Outcomes without an event have no order: each row of them is alone in its window.
    in_session = Window.partitionBy(F.coalesce("session", "id")).orderBy("own_place")
    before = in_session.rowsBetween(Window.unboundedPreceding, -1)
    number = F.when(F.col("own_place").isNotNull(), F.col("sequence"))
    return matched.withColumn("own_place", place).withColumn("after", F.max(number).over(before))


def select_own_effects() -> Column:
    return F.filter("outcomes", lambda outcome: is_effect(outcome) & is_in_own_session(outcome))


def is_effect(outcome: Column) -> Column:
    return outcome["status"] == COMPLETED


def is_in_own_session(outcome: Column) -> Column:
    """Return whether an outcome is in the session of its event; without an event it never is."""
    return outcome["session"].eqNullSafe(F.col("session"))


def is_same_message(outcome: Column) -> Column:
    return (outcome["sequence"] == F.col("sequence")) & (outcome["digest"] == F.col("digest"))


def is_as_expected() -> Column:
    """Return whether an event has one effect, in its session, with its number and content."""
    only = F.get("outcomes", F.lit(0))
    good = is_effect(only) & is_in_own_session(only) & is_same_message(only)
    return F.coalesce((F.size("outcomes") == 1) & good, F.lit(col=False))


def is_out_of_order() -> Column:
    """Return whether an event took effect after one with a higher number."""
    late = F.col("own_place").isNotNull() & (F.col("sequence") < F.col("after"))
    return F.coalesce(late, F.lit(col=False))


def list_findings() -> Column:
    own = select_own_effects()
    elsewhere = F.filter("outcomes", lambda end: is_effect(end) & ~is_in_own_session(end))
    other = F.filter(own, lambda end: ~is_same_message(end))
    # slice counts from 1 and takes no length of zero.
    again = F.when(F.size(own) > 1, F.slice(own, 2, F.size(own))).otherwise(F.array())
    late = F.when(is_out_of_order(), F.slice(own, 1, 1)).otherwise(F.array())
    return F.concat(
        report_missing(F.size(own) == 0),
        F.transform(elsewhere, report_stray),
        F.transform(again, report_repeated),
        F.transform(late, report_disorder),
        F.transform(other, report_difference),
    )


def report_missing(has_no_effect: Column) -> Column:
    """A finding, in an array, if an event has no effect in its session."""
    own = F.filter("outcomes", lambda end: ~is_effect(end) & is_in_own_session(end))
    has_ended, waits = (
        F.get(F.filter(own, is_so), F.lit(0))
        for is_so in (lambda end: end["status"] != PARKED, lambda end: end["status"] == PARKED)
    )
    finding = (
        F.when(has_ended.isNotNull(), FindingKind.FAULTED)
        .when(waits.isNotNull(), FindingKind.WAITING)
        .otherwise(FindingKind.MISSING)
    )
    holder = F.concat(F.lit(", behind the fault at position "), waits["halt"].cast("string"))
    detail = F.coalesce(describe_end(has_ended), F.concat(describe_end(waits), holder))
    missing = F.array(build_finding(finding, F.col("session"), F.col("sequence"), detail))
    is_event = F.col("session").isNotNull()
    return F.when(is_event & has_no_effect, missing).otherwise(F.array())


def report_stray(outcome: Column) -> Column:
    """An effect outside its event's session, or without an event."""
    belongs = F.concat(F.lit("belongs to session "), F.col("session"))
    is_event = F.col("session").isNotNull()
    finding = F.when(is_event, FindingKind.WRONG_SESSION).otherwise(FindingKind.EXTRA)
    detail = F.coalesce(belongs, describe_position(outcome))
    return build_finding(finding, outcome["session"], outcome["sequence"], detail)


def report_repeated(outcome: Column) -> Column:
    detail = describe_position(outcome)
    return build_finding(FindingKind.REPEATED, outcome["session"], F.col("sequence"), detail)


def report_disorder(outcome: Column) -> Column:
    after = F.concat(F.lit(", after number "), F.col("after").cast("string"))
    detail = F.concat(describe_position(outcome), after)
    return build_finding(FindingKind.OUT_OF_ORDER, outcome["session"], F.col("sequence"), detail)


def report_difference(outcome: Column) -> Column:
    """An effect with another number than its event's or, if not that, with another content."""
    number = F.concat(F.lit("as number "), outcome["sequence"].cast("string"))
    digests = (F.substring(digest, 1, 8) for digest in (outcome["digest"], F.col("digest")))
    content = F.format_string("digest %s..., not %s...", *digests)
    detail = F.when(outcome["sequence"] == F.col("sequence"), content).otherwise(number)
    return build_finding(FindingKind.DIFFERENT, outcome["session"], F.col("sequence"), detail)


def build_finding(
    finding: FindingKind | Column, session: Column, sequence: Column, detail: Column
) -> Column:
    return F.struct(
        F.lit(finding).alias("finding"),
        session.alias("session"),
        sequence.alias("sequence"),
        F.col("id").alias("id"),
        detail.alias("detail"),
    )


def describe_end(outcome: Column) -> Column:
    return F.concat(outcome["status"], F.lit(" "), describe_position(outcome))


def describe_position(outcome: Column) -> Column:
    return F.concat(F.lit("at position "), outcome["position"].cast("string"))

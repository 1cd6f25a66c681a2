"""What reconciliation found, brought to the driver; and told in lines on a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from spark.comparison import Finding

EXAMPLES = 5
SESSIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Report:
    """The totals, the first examples of every finding, and the sessions with most findings.

    `rejects` are rows of the source that cannot be events, by reason; they are no findings. `about`
    says what was compared, for people.
    """

    sessions: int
    sessions_amiss: int
    expected: int
    effects: int
    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Row]]
    worst: Sequence[Row]
    rejects: Mapping[str, int]
    about: Mapping[str, str]

    @property
    def is_balanced(self) -> bool:
        """Whether nothing at all was found."""
        return not any(self.counts.values())


def reported(
    accounts: DataFrame, found: DataFrame, rejects: Mapping[str, int], about: Mapping[str, str]
) -> Report:
    """Sum the books up; what is brought to the driver does not grow with them."""
    columns = [F.col(f"`{finding}`") for finding in Finding]
    books = accounts.withColumn("amiss", sum(columns, F.lit(0)))
    sums = [F.sum(name).alias(name) for name in ("expected", "effects", *Finding)]
    sums += [F.count("*").alias("sessions"), F.count_if(F.col("amiss") > 0).alias("amiss")]
    total = books.agg(*sums).collect()[0]
    counts = {finding.value: int(total[finding] or 0) for finding in Finding}
    worst = books.where("amiss > 0").orderBy(F.col("amiss").desc(), "session")
    return Report(
        total["sessions"],
        total["amiss"],
        int(total["expected"] or 0),
        int(total["effects"] or 0),
        counts,
        {finding: examples(found, finding) for finding, count in counts.items() if count},
        worst.limit(SESSIONS_SHOWN).collect(),
        rejects,
        about,
    )


def examples(found: DataFrame, finding: str) -> Sequence[Row]:
    """The first few of a finding."""
    chosen = found.where(F.col("finding") == finding)
    return chosen.orderBy("session", "sequence", "id").limit(EXAMPLES).collect()


def lines(report: Report) -> list[str]:
    """The report for a terminal."""
    said = [f"{report.expected} events expected"]
    said += [f"  and {count} rows rejected: {reason}" for reason, count in report.rejects.items()]
    for finding, count in report.counts.items():
        said.append(f"{count} {finding}")
        said += [f"  {named(row)}" for row in report.examples.get(finding, ())]
    return [*said, verdict(report)]


def verdict(report: Report) -> str:
    """One sentence."""
    return "the books balance" if report.is_balanced else "the books do not balance"


def named(row: Row) -> str:
    """A finding's event, as one looks it up."""
    words = {"session": row["session"], "number": row["sequence"], "id": row["id"]}
    said = " ".join(f"{name} {value}" for name, value in words.items() if value is not None)
    return f"{said}: {row['detail']}" if row["detail"] else said

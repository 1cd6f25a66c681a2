"""What reconciliation found, for people: lines on a terminal, or a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from spark.books import Finding

EXAMPLES = 5
SESSIONS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Report:
    """The totals, the first examples of every finding, and the sessions with most findings."""

    sessions: int
    expected: int
    effects: int
    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Row]]
    worst: Sequence[Row]

    @property
    def is_balanced(self) -> bool:
        """Whether nothing at all was found."""
        return not any(self.counts.values())


def reported(accounts: DataFrame, found: DataFrame) -> Report:
    """Sum the books up; what is brought to the driver does not grow with them."""
    sums = [F.sum(name).alias(name) for name in ("expected", "effects", *Finding)]
    total = accounts.agg(F.count("*").alias("sessions"), *sums).collect()[0]
    counts = {finding.value: int(total[finding] or 0) for finding in Finding}
    amiss = sum((F.col(f"`{finding}`") for finding in Finding), F.lit(0))
    order = (F.col("amiss").desc(), F.col("session"))
    worst = accounts.withColumn("amiss", amiss).where("amiss > 0").orderBy(*order)
    return Report(
        total["sessions"],
        int(total["expected"] or 0),
        int(total["effects"] or 0),
        counts,
        {finding: examples(found, finding) for finding, count in counts.items() if count},
        worst.limit(SESSIONS_SHOWN).collect(),
    )


def examples(found: DataFrame, finding: str) -> Sequence[Row]:
    """The first few of a finding."""
    chosen = found.where(F.col("finding") == finding)
    return chosen.orderBy("session", "sequence", "id").limit(EXAMPLES).collect()


def lines(report: Report) -> list[str]:
    """The report for a terminal."""
    said = [f"{report.expected} events expected"]
    for finding, count in report.counts.items():
        said.append(f"{count} {finding}")
        said += [f"  {named(row)}" for row in report.examples.get(finding, ())]
    return [*said, verdict(report)]


def page(report: Report) -> str:
    """The report as Markdown."""
    head = ["# Source against journal", "", f"**{verdict(report).capitalize()}.**", ""]
    sums = [("sessions", report.sessions), ("events expected", report.expected)]
    sums += [("effects in the journal", report.effects), *report.counts.items()]
    parts = [*head, *table(("", "count"), sums)]
    if report.examples:
        rows = [(finding, *place(row)) for finding, of in report.examples.items() for row in of]
        parts += ["", f"## The first {EXAMPLES} of each finding", ""]
        parts += table(("finding", "session", "number", "id"), rows)
    if report.worst:
        columns = ("session", "expected", "effects", *Finding)
        parts += ["", f"## The {SESSIONS_SHOWN} sessions with most findings", ""]
        parts += table(columns, [tuple(row[name] for name in columns) for row in report.worst])
    return "\n".join(parts) + "\n"


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table in Markdown."""
    return [row_of(head), row_of(["---"] * len(head)), *(row_of(row) for row in rows)]


def row_of(cells: Sequence[object]) -> str:
    """A row of a table in Markdown; no cell can end it."""
    texts = (" ".join(str(cell).replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(texts)} |"


def verdict(report: Report) -> str:
    """One sentence."""
    return "the books balance" if report.is_balanced else "the books do not balance"


def named(row: Row) -> str:
    """A finding's event, as one looks it up."""
    session, sequence, identity = place(row)
    return f"session {session} number {sequence} id {identity}"


def place(row: Row) -> tuple[object, object, object]:
    """Where a finding is."""
    return row["session"], row["sequence"], row["id"]

"""The result of a reconciliation, shown as lines or as a page: one file that needs no network."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from spark.check.reconciliation import FindingKind

EXAMPLES = 5
SESSIONS_SHOWN = 20

MEANINGS = {
    FindingKind.MISSING: "An event of the source has no effect in its session. When the queues "
    "have drained, <code>replay --missing</code> sends just these events again.",
    FindingKind.FAULTED: "An event reached its session and ended there without an effect. The "
    "session's fault says why, and a person has to resolve it.",
    FindingKind.WAITING: "An event reached its session, which is halted by a fault, and waits "
    "there. It takes effect by itself once a person has resolved the fault; sending it again helps "
    "nothing.",
    FindingKind.EXTRA: "There is an effect under this group's name without an event in the source: "
    "its row was deleted, the mapping is another, or there is another sender.",
    FindingKind.WRONG_SESSION: "An event took effect in a session that is not its own. From its "
    "own session it is missing.",
    FindingKind.REPEATED: "An event took effect more than once.",
    FindingKind.OUT_OF_ORDER: "An event took effect after one that comes later in its session.",
    FindingKind.DIFFERENT: "The journal holds an event with another content or number than the "
    "source gives it now. A feed with a manifest sends what has changed.",
    FindingKind.TWICE: "The source has several rows under one key. The first is the event; the "
    "others were rejected.",
}


@dataclass(frozen=True, slots=True)
class ReconciliationReport:
    """The totals, the first examples of every finding, and the sessions with most findings.

    `rejects` are rows of the source that cannot become events, by reason; they are no findings.
    `about` describes for people what was compared.
    """

    sessions: int
    sessions_with_findings: int
    expected: int
    effects: int
    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Row]]
    worst: Sequence[Row]
    rejects: Mapping[str, int]
    about: Mapping[str, str]

    @property
    def has_findings(self) -> bool:
        return any(self.counts.values())

    @property
    def result(self) -> str:
        return f"source and journal {'differ' if self.has_findings else 'agree'}"


def build_report(
    by_session: DataFrame, found: DataFrame, rejects: Mapping[str, int], about: Mapping[str, str]
) -> ReconciliationReport:
    """Add up the counts of all sessions. The report's size does not grow with them."""
    columns = [F.col(f"`{finding}`") for finding in FindingKind]
    counted = by_session.withColumn("findings", sum(columns, F.lit(0)))
    sums = [F.sum(name).alias(name) for name in ("expected", "effects", *FindingKind)]
    sums += [F.count("*").alias("sessions"), F.count_if(F.col("findings") > 0).alias("differing")]
    total = counted.agg(*sums).collect()[0]
    counts = {finding.value: int(total[finding] or 0) for finding in FindingKind}
    worst = counted.where("findings > 0").orderBy(F.col("findings").desc(), "session")
    return ReconciliationReport(
        total["sessions"],
        total["differing"],
        int(total["expected"] or 0),
        int(total["effects"] or 0),
        counts,
        {finding: select_examples(found, finding) for finding, count in counts.items() if count},
        worst.limit(SESSIONS_SHOWN).collect(),
        rejects,
        about,
    )


def select_examples(found: DataFrame, finding: str) -> Sequence[Row]:
    chosen = found.where(F.col("finding") == finding)
    return chosen.orderBy("session", "sequence", "id").limit(EXAMPLES).collect()


def format_lines(report: ReconciliationReport) -> list[str]:
    lines = [f"{report.expected} events expected"]
    lines += [f"  and {count} rows rejected: {reason}" for reason, count in report.rejects.items()]
    for finding, count in report.counts.items():
        lines.append(f"{count} {finding}")
        lines += [f"  {describe_finding(row)}" for row in report.examples.get(finding, ())]
    return [*lines, report.result]


def describe_finding(row: Row) -> str:
    """The event of a finding, as one looks it up, and the detail."""
    words = {"session": row["session"], "number": row["sequence"], "id": row["id"]}
    event = " ".join(f"{name} {value}" for name, value in words.items() if value is not None)
    return f"{event}: {row['detail']}" if row["detail"] else event


def render_page(report: ReconciliationReport) -> str:
    totals = {
        "events expected": report.expected,
        "effects in the journal": report.effects,
        "sessions": report.sessions,
        "rows rejected": sum(report.rejects.values()),
    }
    tiles = (
        f'<div class="tile"><b>{count:,}</b><span class="soft">{name}</span></div>'
        for name, count in totals.items()
    )
    examples = [
        (finding, row["session"], row["sequence"], row["detail"], row["id"])
        for finding, few in report.examples.items()
        for row in few
    ]
    head = {"finding": "", "session": "session", "number": "number", "": "text", "id": "id"}
    kinds = (finding for finding in FindingKind if report.counts[finding])
    worst_head = {"session": "session"} | dict.fromkeys(("expected", "effects", *kinds), "number")
    worst = [tuple(row[name] for name in worst_head) for row in report.worst]
    reject_head = {"reason": "", "rows": "number"}
    tables = (
        render_table(f"The first {EXAMPLES} of each", head, examples),
        render_table(f"The {SESSIONS_SHOWN} sessions with most findings", worst_head, worst),
        render_table("Rows that cannot become events", reject_head, [*report.rejects.items()]),
    )
    page = files("spark.check").joinpath("report.html").read_text(encoding="utf-8")
    return Template(page).substitute(
        result=report.result.capitalize(),
        tone="bad" if report.has_findings else "good",
        sentence=render_sentence(report),
        tiles="".join(tiles),
        findings="".join(render_findings(report)),
        tables="".join(tables),
        about="".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in report.about.items()),
    )


def render_sentence(report: ReconciliationReport) -> str:
    if not report.has_findings:
        return "Every event of the source has its one effect, in its session, in its place."
    found = render_count(sum(report.counts.values()), "finding")
    sessions = render_count(report.sessions, "session")
    return f"{found} in {report.sessions_with_findings:,} of {sessions}."


def render_findings(report: ReconciliationReport) -> Iterable[str]:
    """A row for every kind of finding, with its meaning; those with a count of 0 are greyed out."""
    for finding, meaning in MEANINGS.items():
        count = report.counts[finding]
        row, tone = ("", " bad") if count else (' class="none"', "")
        yield f"<tr{row}><th>{finding}</th>"
        yield f'<td class="number{tone}">{count:,}</td><td>{meaning}</td></tr>'


def render_table(title: str, head: Mapping[str, str], rows: Sequence[Sequence[object]]) -> str:
    """A table of escaped cells, or nothing without rows. `head` gives columns CSS classes."""
    if not rows:
        return ""
    kinds = list(head.values())
    heads = (f'<th class="{kind}">{escape(name)}</th>' for name, kind in head.items())
    lines = []
    for row in rows:
        cells = zip(map(render_value, row), kinds, strict=True)
        lines.append("".join(f'<td class="{kind}">{escape(text)}</td>' for text, kind in cells))
    body = f"<thead><tr>{''.join(heads)}</tr></thead>"
    body += "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<h2>{escape(title)}</h2><div class="wide"><table>{body}</table></div>'


def render_value(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def render_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")

"""Reconciliation as one HTML page: it needs no network, and it prints."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template

from spark.comparison import Finding
from spark.report import EXAMPLES, SESSIONS_SHOWN, Report, verdict

MEANINGS = {
    Finding.MISSING: "An event of the source has no effect in its session. When the queues have "
    "drained, <code>replay --missing</code> sends just these again.",
    Finding.FAULTED: "It reached its session and ended there without effect; the session's fault "
    "says why, and a person resolves it.",
    Finding.EXTRA: "An effect under this group's name that the source does not account for: a "
    "row that was deleted since, another mapping, or another sender.",
    Finding.WRONG_SESSION: "An event took effect in a session that is not its own. In its own it "
    "is missing.",
    Finding.REPEATED: "An event took effect more than once.",
    Finding.OUT_OF_ORDER: "An event took effect after one that comes later in its session.",
    Finding.DIFFERENT: "The journal holds another content, or another number, than the source "
    "says now. A feed with a manifest sends what has changed.",
    Finding.TWICE: "The source has several rows under one key. The first is the event; the others "
    "were rejected.",
}

PAGE = Template("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$verdict</title>
<style>
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6676; --page: #fff; --card: #f6f7f9;
  --line: #dfe3e8; --good: #1a7f4b; --bad: #c43131; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaf0; --soft: #98a3b3; --page: #12161c;
  --card: #1a2029; --line: #2c3541; --good: #5fd39a; --bad: #ff7b7b; } }
* { box-sizing: border-box; }
body { max-width: 1040px; margin: 0 auto; padding: 32px 20px 48px; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
header { border-left: 6px solid var(--$tone); padding: 2px 0 2px 18px; }
h1 { margin: 0; font-size: 28px; line-height: 1.25; color: var(--$tone); }
h2 { margin: 36px 0 8px; font-size: 18px; }
p { margin: 6px 0; }
.soft, .none td, .none th { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 12px;
  margin: 24px 0 0; }
.tile { background: var(--card); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 24px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 6px 16px 6px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; }
thead th { font-weight: 500; color: var(--soft); font-size: 13px; white-space: normal;
  vertical-align: bottom; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.amiss { color: var(--bad); font-weight: 600; }
code, td.id, td.session { font: 13px/1.6 ui-monospace, monospace; }
code, td.id, td.number { white-space: nowrap; }
.session, .text { min-width: 9em; max-width: 26em; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; margin: 8px 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { padding: 0; } .tile { border: 1px solid var(--line); } }
</style>
<header><h1>$verdict</h1><p class="soft">$sentence</p></header>
<div class="tiles">$tiles</div>
<h2>Findings</h2>
<div class="wide"><table>$findings</table></div>
$parts
<h2>What was compared</h2>
<dl>$about</dl>
</html>
""")


def page(report: Report) -> str:
    """The page."""
    return PAGE.substitute(
        verdict=verdict(report).capitalize(),
        tone="good" if report.is_balanced else "bad",
        sentence=sentence(report),
        tiles="".join(tiles(report)),
        findings="".join(kinds(report)),
        parts="".join((examples(report), sessions(report), rejected(report))),
        about="".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in report.about.items()),
    )


def sentence(report: Report) -> str:
    """The verdict with its reason."""
    if report.is_balanced:
        return "Every event of the source has its one effect, in its session, in its place."
    found, amiss = sum(report.counts.values()), report.sessions_amiss
    return f"{counted(found, 'finding')} in {amiss:,} of {counted(report.sessions, 'session')}."


def tiles(report: Report) -> Iterable[str]:
    """The totals."""
    sums = {
        "events expected": report.expected,
        "effects in the journal": report.effects,
        "sessions": report.sessions,
        "rows rejected": sum(report.rejects.values()),
    }
    for name, count in sums.items():
        yield f'<div class="tile"><b>{count:,}</b><span class="soft">{name}</span></div>'


def kinds(report: Report) -> Iterable[str]:
    """A row for every kind of finding, with what it means; those that were not found stand back."""
    for finding, meaning in MEANINGS.items():
        count = report.counts[finding]
        row, tone = ("", " amiss") if count else (' class="none"', "")
        yield f"<tr{row}><th>{finding}</th>"
        yield f'<td class="number{tone}">{count:,}</td><td>{meaning}</td></tr>'


def examples(report: Report) -> str:
    """The first few of every finding."""
    rows = [
        (finding, row["session"], row["sequence"], row["detail"], row["id"])
        for finding, few in report.examples.items()
        for row in few
    ]
    head = {"finding": "", "session": "session", "number": "number", "": "text", "id": "id"}
    return table(f"The first {EXAMPLES} of each", head, rows)


def sessions(report: Report) -> str:
    """The sessions in which most is amiss, and of what kind."""
    kinds = (finding for finding in Finding if report.counts[finding])
    head = {"session": "session"} | dict.fromkeys(("expected", "effects", *kinds), "number")
    rows = [tuple(row[name] for name in head) for row in report.worst]
    return table(f"The {SESSIONS_SHOWN} sessions with most findings", head, rows)


def rejected(report: Report) -> str:
    """Why rows of the source are no events."""
    head = {"reason": "", "rows": "number"}
    return table("Rows that cannot be events", head, list(report.rejects.items()))


def table(title: str, head: Mapping[str, str], rows: Sequence[Sequence[object]]) -> str:
    """A table under its title; nothing where it has no rows. `head` says what the columns are."""
    if not rows:
        return ""
    kinds = list(head.values())
    heads = (f'<th class="{kind}">{escape(name)}</th>' for name, kind in head.items())
    lines = (f"<tr>{''.join(cells(row, kinds))}</tr>" for row in rows)
    body = f"<thead><tr>{''.join(heads)}</tr></thead>{''.join(lines)}"
    return f'<h2>{escape(title)}</h2><div class="wide"><table>{body}</table></div>'


def cells(row: Sequence[object], kinds: Sequence[str]) -> Iterable[str]:
    """The cells of a row; whatever a source says is text."""
    for value, kind in zip(row, kinds, strict=True):
        said = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
        yield f'<td class="{kind}">{escape(said)}</td>'


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")

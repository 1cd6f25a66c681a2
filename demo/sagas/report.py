"""The verdict of a run, as lines and as one HTML page with the picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from demo.row import Row
from demo.sagas.books import Saga
from demo.sagas.picture import Picture, draw

PAGE = Template("""\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lockstep: sagas through a region's death</title>
<style>
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6676; --page: #fff; --card: #f6f7f9;
  --completed: #1a7f4b; --compensated: #e08a1e; --failed: #c43131; --running: #2f6fdb; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaf0; --soft: #98a3b3; --page: #12161c;
  --card: #1a2029; --completed: #5fd39a; --compensated: #f2a94a; --failed: #ff7b7b;
  --running: #6ea1ff; } }
body { max-width: 1000px; margin: 0 auto; padding: 32px 20px; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
svg { background: var(--card); border-radius: 10px; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg text.heading { fill: var(--text); font-weight: 600; }
svg text.turn { fill: var(--failed); font-weight: 600; }
.completed { fill: var(--completed); color: var(--completed); }
.compensated { fill: var(--compensated); color: var(--compensated); }
.failed { fill: var(--failed); color: var(--failed); }
.running { fill: var(--running); color: var(--running); }
.outage { fill: #d6454530; }
.legend { margin-right: 18px; }
td, th { text-align: left; padding: 4px 20px 4px 0; vertical-align: top; }
th { font-weight: 500; }
</style>
<h1>$headline</h1>
<p>$legend</p>
$picture
<table>$rows</table>
</html>
""")
LEGEND = ("running", "completed", "compensated", "failed")


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to."""

    findings: Sequence[Row]
    sagas: Sequence[Saga]
    outage: tuple[float, float] | None
    region: str

    @property
    def is_broken(self) -> bool:
        """Whether a promise was broken."""
        return any(finding.is_good is False for finding in self.findings)

    @property
    def headline(self) -> str:
        """The verdict in four words."""
        return "A promise was broken" if self.is_broken else "Every promise held"

    def lines(self) -> Iterator[str]:
        """The verdict for a terminal."""
        yield ""
        for finding in self.findings:
            yield f"{mark(finding):<7} {finding.label:<44} {finding.value}"
        yield ""
        yield self.headline

    def write(self, path: Path) -> None:
        """Write the page; raises OSError."""
        rows = (
            f"<tr><td>{escape(mark(f))}</td><th>{escape(f.label)}</th>"
            f"<td>{escape(f.value)}</td></tr>"
            for f in self.findings
        )
        legend = (f'<span class="legend {state}">&#9632; {state}</span>' for state in LEGEND)
        page = PAGE.substitute(
            headline=escape(self.headline),
            legend="".join(legend),
            picture=draw(Picture(self.sagas, self.outage, self.region)),
            rows="".join(rows),
        )
        path.write_text(page, encoding="utf-8")


def mark(finding: Row) -> str:
    """What stands before a finding."""
    match finding.is_good:
        case True:
            return "ok"
        case False:
            return "BROKEN"
        case None:
            return ""

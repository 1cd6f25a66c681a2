"""The report of a run: one HTML file that needs nothing else, in light and dark."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from string import Template

from chaos.figures import Figures, figures
from chaos.judge.history import History
from chaos.judge.verdict import Finding
from chaos.options import Options
from chaos.picture import BLOWS, draw
from chaos.timeline import Timeline
from demo.display import clock
from demo.report import STYLE, table
from demo.row import Row

TEMPLATE = Path(__file__).with_name("report.html")


@dataclass(frozen=True)
class Report:
    """Everything a finished run has to say."""

    options: Options
    history: History
    timeline: Timeline
    findings: Sequence[Finding]
    figures: Figures

    @classmethod
    def of(
        cls, options: Options, history: History, timeline: Timeline, findings: Sequence[Finding]
    ) -> "Report":
        """Put a report together."""
        return cls(options, history, timeline, findings, figures(history, timeline))

    @property
    def violations(self) -> int:
        """How often any promise was broken."""
        return sum(finding.violations for finding in self.findings)

    def write(self) -> None:
        """Write the page to where the options say; raises OSError."""
        self.options.report.parent.mkdir(parents=True, exist_ok=True)
        self.options.report.write_text(render(self), encoding="utf-8")

    def blows(self) -> set[tuple[str, float]]:
        """What was taken away and when, once where it struck several components."""
        return {(bar.what, bar.begin) for bar in self.timeline.bars if bar.what in BLOWS}

    def rows(self) -> Iterator[Row]:
        """The figures of a run, for the terminal and the page alike."""
        timeline, safe = self.timeline, [sent for sent in self.history.sent if sent.is_safe]
        yield Row("messages accepted", f"{len(safe)} in {len({s.session for s in safe})} sessions")
        yield Row("effects", f"{len(self.history.copies)}, {len(self.history.seen)} copies sent")
        yield Row("runs of effectful handlers", runs(self.history))
        yield Row("taken away", told(what for what, _ in self.blows()))
        spoiled = [bar for bar in timeline.bars if bar.what not in BLOWS]
        yield Row("spoiled", told(" ".join(bar.what.split()[:1]) for bar in spoiled))
        if self.figures.overall:
            p50, p99 = self.figures.overall.p50, self.figures.overall.p99
            yield Row("accepted to effect visible", f"median {p50:.2f} s, 99th {p99:.1f} s")
        yield Row("duration", f"{timeline.end - timeline.begin:.0f} s")


def runs(history: History) -> str:
    """How often handlers ran that call the outside, and for how many messages."""
    return f"{len(history.runs)} for {len({run.id for run in history.runs})} messages"


def told(words: Iterable[str]) -> str:
    """How often each of these, the most frequent first."""
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common()) or "nothing"


def render(report: Report) -> str:
    """Return the report as HTML."""
    started = datetime.fromtimestamp(report.timeline.begin).astimezone()
    is_good = not report.violations
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        style=STYLE.read_text(encoding="utf-8"),
        started=f"{started:%Y-%m-%d %H:%M:%S %Z}",
        tone="good" if is_good else "bad",
        headline="Every promise held" if is_good else "A promise was broken",
        tiles="".join(tiles(report)),
        regions="".join(
            f'<span><i class="swatch region{index}"></i>{escape(name)}</span>'
            for index, name in enumerate(report.history.regions)
        ),
        chart=draw(report.timeline, report.figures),
        findings=table(promises(report.findings)),
        settings=table([*settings(report.options), *report.rows()]),
        events=table(events(report.timeline)),
    )


def tiles(report: Report) -> Iterator[str]:
    """Yield the numbers a reader wants first."""
    overall = report.figures.overall
    numbers = [
        ("messages accepted", str(sum(sent.is_safe for sent in report.history.sent))),
        ("violations", str(report.violations)),
        ("taken away", str(len(report.blows()))),
        ("spoiled", str(sum(bar.what not in BLOWS for bar in report.timeline.bars))),
        ("median to effect", f"{overall.p50:.2f} s" if overall else "none"),
        ("99th percentile", f"{overall.p99:.1f} s" if overall else "none"),
    ]
    for name, number in numbers:
        yield f'<div class="tile"><b>{escape(number)}</b><span>{escape(name)}</span></div>'


def promises(findings: Sequence[Finding]) -> Iterator[Row]:
    """Yield one row for each promise."""
    for finding in findings:
        value = f"checked {finding.checked} {finding.promise.of}, {finding.violations} violations"
        examples = "".join(f"; {example}" for example in finding.examples)
        name = f"{finding.promise.name} {finding.promise.says}"
        yield Row(name, value + examples, is_good=not finding.violations)


def settings(options: Options) -> Iterator[Row]:
    """Yield what the run was asked to do."""
    yield Row("seed", f"{options.seed}; the same seed plans the same weather and load")
    asked = options.messages and f"{options.messages} messages"
    yield Row("asked for", asked or f"{options.seconds:g} s")
    yield Row("at most", f"{options.rate:g} messages a second, {options.operation_max} at once")
    yield Row("pauses between mishaps", f"{options.ease:g} times the usual ones")
    yield Row("hosts take", f"{options.cardinality} at a time")


def events(timeline: Timeline) -> Iterator[Row]:
    """Yield what happened, with the time of day and the second of the run."""
    for event in timeline.events:
        yield Row(clock(event.at), f"{event.at - timeline.begin:.1f} s  {event.text}")

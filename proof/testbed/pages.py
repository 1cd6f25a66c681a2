"""The report of a run: one HTML file that needs nothing else, in light and dark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line of a report; `is_good` is None for a line that only informs.

    `is_unfinished` says that a run was broken off before it could be good, and breaks nothing.
    """

    label: str
    value: str
    is_good: bool | None = None
    is_unfinished: bool = False

    @property
    def is_broken(self) -> bool:
        return self.is_good is False and not self.is_unfinished


MARKS = {True: "[green]ok[/]", False: "[bold red]NO[/]", None: ""}
NOT_YET = "[bold yellow]..[/]"
HEADLINES = {
    "bad": "A promise was broken",
    "unfinished": "The run did not finish",
    "good": "Every promise held",
}
# Words of every report that a reader may not know.
TERMS = {
    "session": "what has an order of its own, such as an account: its messages follow one another",
    "effect": "what processing a message changed, once, however many copies of it arrived",
    "copy": "each region's queue gets one of every message; one is processed, the other is settled",
    "take-over": "from the loss of a region to the first effect in the other one",
}


@dataclass(frozen=True, slots=True)
class ReportPage:
    """The content of a report, from the top: `tiles` are the numbers a reader wants first.

    `story` says what was done, and which settings were not the product's defaults; `terms` explains
    its words. `unfinished` says what was left of a run that was broken off: what is not done broke
    no promise, and was not checked. `shortfalls` say what the run did not show, though no promise
    was broken, `hint` what a person may do. `chart` is an SVG element, or empty; `sections` are
    tables by their headings.
    """

    title: str
    started_at: float
    problems: Sequence[str]
    chart: str
    sections: Mapping[str, Sequence[ReportRow]]
    story: str
    shortfalls: Sequence[str] = ()
    unfinished: Sequence[str] = ()
    hint: str = ""
    tiles: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=lambda: TERMS)

    @property
    def outcome(self) -> str:
        """The style of the headline."""
        if self.problems:
            return "bad"
        return "unfinished" if self.unfinished else "good"

    @property
    def headline(self) -> str:
        return HEADLINES[self.outcome]

    @property
    def started(self) -> str:
        started = datetime.fromtimestamp(self.started_at).astimezone()
        return f"{started:%Y-%m-%d %H:%M:%S %Z}"

    def render(self) -> str:
        """Return the page as HTML; everything but the chart is escaped."""
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        loader = FileSystemLoader(TEMPLATES)
        environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
        return environment.get_template("report.html").render(page=self)

    def print(self, console: "Console", path: Path) -> None:
        """Print what was checked and what came of it, and where the page is."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column()
        for row in self.sections["Checks"]:
            mark = NOT_YET if row.is_unfinished else MARKS[row.is_good]
            table.add_row(mark, Text(row.label), Text(row.value))
        console.print("", table, "", sep="\n")
        for word, style, found in (
            ("BROKEN", "bold red", self.problems),
            ("NOT FINISHED", "bold yellow", self.unfinished),
            ("NOT SHOWN", "bold yellow", self.shortfalls),
        ):
            for one in found:
                console.print(Text(f"{word}  {one}", style=style), soft_wrap=True)
        console.print(f"[bold]{self.headline}[/]")
        if self.outcome == "unfinished":
            console.print("What was done broke no promise. The rest could not be checked.")
        if self.hint:
            console.print(Text(self.hint), soft_wrap=True)
        console.print(Text(f"report: {path}"), soft_wrap=True)

    def write(self, path: Path) -> None:
        """Write the page, and its chart into a file beside it; raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.render(), encoding="utf-8")
        if self.chart:
            path.with_suffix(".svg").write_text(write_picture(self.chart), encoding="utf-8")


def write_picture(chart: str) -> str:
    """Return a chart as a file of its own, with the light and dark colours of reports."""
    # What crosses a text does not strike it out.
    own = "svg { background: var(--page); } text { paint-order: stroke; stroke: var(--page);"
    style = f"{(TEMPLATES / 'report.css').read_text('utf-8')}{own} stroke-width: 4px; }}"
    root = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return root.replace("</title>", f"</title><style>{style}</style>", 1)

"""The verdict on the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.outcome import Outcome
from demo.row import Row


def print_summary(console: Console, outcome: Outcome) -> None:
    """Print every line of the verdict, then in one sentence whether all promises held."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in outcome.rows():
        table.add_row(mark(row), row.label, row.value)
    console.print()
    console.print(table)
    console.print()
    for problem in outcome.problems():
        console.print(Text(f"BROKEN  {problem}", style="bold red"), soft_wrap=True)
    if not outcome.problems():
        console.print(Text("every promise held", style="bold green"))
    console.print(f"report: {outcome.options.report}", soft_wrap=True, highlight=False)


def mark(row: Row) -> Text:
    """Return the sign before a line."""
    match row.is_good:
        case True:
            return Text("ok", style="green")
        case False:
            return Text("NO", style="bold red")
        case None:
            return Text("")

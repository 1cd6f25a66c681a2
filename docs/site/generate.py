"""Write the tables that repeat the code into the pages: `python -m docs.site.generate`.

A page says with `<!-- generated: NAME -->` and `<!-- end -->` where a table belongs. What stands
between these lines is replaced, and nothing else of the page.
"""

import re
from collections.abc import Callable
from pathlib import Path

from docs.site import code_tables, cost_table, decision_table, failure_table

ROOT = Path(__file__).parents[2]
PAGES = sorted(ROOT.glob("docs/**/*.md"))
COMMAND = "python -m docs.site.generate"
PLACE = re.compile(r"<!-- generated: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
TABLES: dict[str, Callable[[], str]] = {
    "settings": code_tables.render_settings,
    "measures": code_tables.render_measures,
    "failure-reasons": code_tables.render_reasons,
    "publishing-limits": code_tables.render_publishing_limits,
    "decisions": decision_table.render,
    "failures": failure_table.render,
    "month": cost_table.render_month,
    "month-before": cost_table.render_before,
    "month-switches": cost_table.render_switches,
    "prices": cost_table.render_prices,
}


def generate(text: str) -> str:
    """The text of a page with every table as the code has it; a name without table is KeyError."""
    return PLACE.sub(write_table, text)


def write_table(place: re.Match[str]) -> str:
    name = place[1]
    return f"<!-- generated: {name} -->\n\n{TABLES[name]()}\n\n<!-- end -->"


def main() -> None:
    for page in PAGES:
        before = page.read_text("utf-8")
        after = generate(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(page.relative_to(ROOT))  # noqa: T201


if __name__ == "__main__":
    main()

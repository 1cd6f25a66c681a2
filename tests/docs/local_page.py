"""Reading docs/local.md: its sections, tables and the names in them."""

import re
from inspect import getsource
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/local.md").read_text()
MEBIBYTE = 1024 * 1024
ITEMS, ITEM = "/dbs/d/colls/c/docs", "/dbs/d/colls/c/docs/i"


def section(title: str) -> str:
    """A section of the page, up to the next one."""
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def paragraph(title: str, start: str) -> str:
    """The one paragraph of a section that starts with these words."""
    parts = section(title).split("\n\n")
    (found,) = [part for part in parts if part.strip().startswith(start)]
    return found


def rows(title: str, head: str) -> list[list[str]]:
    """The rows, as cells, of the table of a section whose first column is called `head`."""
    lines = paragraph(title, f"| {head} |").strip().splitlines()[2:]
    return [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines]


def coded(text: str) -> list[str]:
    """What is set in code marks."""
    return re.findall(r"`([^`]+)`", text)


def names(title: str, head: str, column: int = 0) -> set[str]:
    """What is set in code marks in one column of a table."""
    return {name for row in rows(title, head) for name in coded(row[column])}


def cells(title: str, head: str, column: int = 1) -> dict[str, str]:
    """One column of a table, by each name in the first."""
    return {name: row[column] for row in rows(title, head) for name in coded(row[0])}


def quoted(pattern: str, *sources: Any) -> set[str]:
    """The strings within what a pattern matches in sources: a table that is written as calls."""
    return {
        name
        for source in sources
        for match in re.findall(pattern, getsource(source))
        for name in re.findall(r'"([^"]+)"', match)
    }


def modules(package: str) -> str:
    """The source of all modules of a package."""
    return "\n".join(path.read_text() for path in sorted((ROOT / package).rglob("*.py")))


def options(help_text: str) -> set[str]:
    """The options in argparse's help, but for --help."""
    return set(re.findall(r"^  (--[\w-]+)", help_text, re.MULTILINE))

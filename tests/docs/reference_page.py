"""docs/reference.md and docs/runbook.md, read by their sections and tables."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference.md"
RUNBOOK = DOCS / "runbook.md"


def section(title: str, page: Path = REFERENCE) -> str:
    """A section of a page, up to the next one."""
    return page.read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str, page: Path = REFERENCE) -> dict[str, list[str]]:
    """The first table of a section: first cell without its code marks, to the other cells."""
    table = [line for line in section(title, page).splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    return {first.strip().strip("`"): rest for first, *rest in cells}

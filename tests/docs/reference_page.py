"""docs/reference.md, read by its sections and their tables."""

from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs/reference.md"


def section(title: str) -> str:
    """A section of the reference, up to the next one."""
    return REFERENCE.read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str) -> dict[str, list[str]]:
    """The first table of a section: first cell without its code marks, to the other cells."""
    table = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    return {first.strip().strip("`"): rest for first, *rest in cells}

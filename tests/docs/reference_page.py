"""docs/reference.md and docs/runbook.md, read by their sections and tables."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference.md"
RUNBOOK = DOCS / "runbook.md"
# A place of a page that answers lead to.
PLACE = re.compile('<a id="([^"]+)"></a>')


def section(title: str, page: Path = REFERENCE) -> str:
    """A section of a page, up to the next one."""
    return page.read_text().split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str, page: Path = REFERENCE) -> dict[str, list[str]]:
    """The first table of a section: first cell without its marks, to the other cells."""
    table = [line for line in section(title, page).splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    named = [(PLACE.sub("", first), rest) for first, *rest in cells]
    return {first.strip().strip("`"): rest for first, rest in named}


def anchors(page: Path) -> list[str]:
    """What a link to a page may lead to: its headings, and the places that are named."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]
    return slugs + PLACE.findall(text)

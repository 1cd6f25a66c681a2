"""The pages of the documentation, read as a reader sees them: sections, tables, blocks, links."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Table:
    head: list[str]
    rows: list[list[str]]

    def column(self, at: int = 1) -> dict[str, str]:
        """The cells of a column by each name in the first column."""
        return {name: row[at] for row in self.rows for name in names_in(row[0])}

    def names(self, at: int = 0) -> set[str]:
        """Every name in a column."""
        return {name for row in self.rows for name in names_in(row[at])}


@dataclass(frozen=True)
class Page:
    """A page of the distribution."""

    path: Path
    text: str

    @cached_property
    def tables(self) -> list[Table]:
        found = re.findall(r"(?:^\|.*\n?)+", self.without_blocks, re.MULTILINE)
        read = [[cells_of(line) for line in one.splitlines()] for one in found]
        return [Table(head, rows) for head, _, *rows in read]

    def table(self, head: str) -> Table:
        """The one table whose first column is called so."""
        (found,) = [one for one in self.tables if one.head[0] == head]
        return found

    def programs(self, language: str = "python") -> list[str]:
        return [one["text"] for one in BLOCK.finditer(self.text) if one["language"] == language]

    @cached_property
    def without_blocks(self) -> str:
        return BLOCK.sub("", self.text)

    @cached_property
    def words(self) -> list[str]:
        """What is set in code marks outside blocks."""
        return coded(self.without_blocks)

    @cached_property
    def anchors(self) -> list[str]:
        """What a link to the page may lead to: its headings."""
        titles = [one[2].lower() for one in HEADING.finditer(self.without_blocks)]
        return [re.sub(r"[^\w -]", "", one).replace(" ", "-") for one in titles]


def page(name: str) -> Page:
    """A page by its path in the distribution."""
    return Page(ROOT / name, (ROOT / name).read_text("utf-8"))


def coded(text: str) -> list[str]:
    """What is set in code marks."""
    return re.findall(r"`([^`]+)`", text)


def names_in(cell: str) -> list[str]:
    """The names in a cell: what is set in code marks, or else the cell itself."""
    return coded(cell) or [cell]


def cells_of(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [cell.strip() for cell in cells]

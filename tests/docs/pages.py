"""The pages of the documentation, read as a reader sees them: sections, tables, blocks, links."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATHS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>file|terminal): (?P<name>\S+) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
# A place of a page that answers lead to.
PLACE = re.compile('<a id="([^"]+)"></a>')


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. A comment above it may mark it as a file, or as lines for a terminal."""

    language: str
    text: str
    mark: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Table:
    head: list[str]
    rows: list[list[str]]

    def column(self, at: int = 1) -> dict[str, str]:
        """The cells of a column by each name in the first column."""
        return {name: row[at] for row in self.rows for name in names_in(row[0])}

    def names(self, at: int = 0) -> set[str]:
        return {name for row in self.rows for name in names_in(row[at])}


@dataclass(frozen=True)
class Page:
    """A page, or a section of it."""

    path: Path
    text: str

    def section(self, title: str) -> "Page":
        """What stands under a heading, up to the next heading that is not below it."""
        (found,) = [one for one in self._headings if one[2] == title]
        ends = [one.start() for one in self._headings if one.start() > found.start()]
        levels = [len(one[1]) for one in self._headings if one.start() > found.start()]
        end = next((e for e, n in zip(ends, levels, strict=True) if n <= len(found[1])), None)
        return Page(self.path, self.text[found.end() : end])

    @cached_property
    def tables(self) -> list[Table]:
        found = re.findall(r"(?:^\|.*\n?)+", self.without_blocks, re.MULTILINE)
        read = [[cells_of(line) for line in one.splitlines()] for one in found]
        return [Table(head, rows) for head, _, *rows in read]

    def table(self, head: str) -> Table:
        """The one table whose first column is called so."""
        (found,) = [one for one in self.tables if one.head[0] == head]
        return found

    @cached_property
    def blocks(self) -> list[Block]:
        found = BLOCK.finditer(self.text)
        return [Block(one["language"], one["text"], one["mark"], one["name"]) for one in found]

    def programs(self, language: str = "python") -> list[str]:
        return [block.text for block in self.blocks if block.language == language]

    def run(self) -> dict[str, Any]:
        """Run the Python blocks, one after another, as one module; returns what they define."""
        names: dict[str, Any] = {"__name__": "page"}
        for program in self.programs():
            exec(compile(program, str(self.path), "exec"), names)
        return names

    @cached_property
    def without_blocks(self) -> str:
        return BLOCK.sub("", self.text)

    @cached_property
    def words(self) -> list[str]:
        """What is set in code marks outside blocks."""
        return coded(self.without_blocks)

    @cached_property
    def anchors(self) -> list[str]:
        """What a link to the page may lead to: its headings, and the places that are named."""
        titles = [one[2].lower() for one in self._headings]
        slugs = [re.sub(r"[^\w -]", "", one).replace(" ", "-") for one in titles]
        return slugs + PLACE.findall(self.text)

    @cached_property
    def _headings(self) -> list[re.Match[str]]:
        inside = [range(*block.span()) for block in BLOCK.finditer(self.text)]
        found = HEADING.finditer(self.text)
        return [one for one in found if not any(one.start() in span for span in inside)]


def page(name: str) -> Page:
    """A page by its path in the checkout."""
    return Page(ROOT / name, (ROOT / name).read_text("utf-8"))


def coded(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def names_in(cell: str) -> list[str]:
    """The names in a cell: what is set in code marks, or else the cell itself."""
    return coded(cell) or [cell]


def cells_of(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [PLACE.sub("", cell).strip() for cell in cells]

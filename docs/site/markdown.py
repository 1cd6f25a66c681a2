"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [write_row(head), "|" + "---|" * len(head), *(write_row(row) for row in rows)]
    return "\n".join(lines)


def write_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def code(text: object) -> str:
    return f"`{text}`"

"""Write the tables that repeat the code into the pages here: `python docs/generate.py`.

A page says with `<!-- generated: NAME -->` and `<!-- end -->` where a table belongs. What stands
between these lines is replaced, and nothing else of the page.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from local.cosmos import charges
from local.cosmos.http.batches import BATCH_BYTES_MAX, OPERATIONS_MAX
from local.cosmos.items import containers, documents, partitions, patch
from local.cosmos.query.paging import PAGE_BYTES, PAGE_ITEMS
from local.cosmos.server import BODY_BYTES_MAX as REQUEST_BYTES_MAX
from local.cosmos.sql.parser import DEPTH_MAX

PAGES = sorted(Path(__file__).parent.glob("*.md"))
PLACE = re.compile(r"<!-- generated: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
MEBIBYTE = 1024 * 1024
SMALL, LARGE = 1024, 100 * 1024
QUERY_SOURCE = (
    f"estimate: {charges.QUERY_BASE} and a tenth of a read per item looked at; twice if strong."
    " Items that an index rules out are not looked at"
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [write_row(head), "|" + "---|" * len(head), *map(write_row, rows)]
    return "\n".join(lines)


def write_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def render_cosmos_limits() -> str:
    rows = {
        "a request": f"{REQUEST_BYTES_MAX // MEBIBYTE} MiB",
        "an item": f"{documents.ITEM_BYTES_MAX // MEBIBYTE} MiB, nested"
        f" {documents.LEVELS_MAX} deep",
        "a batch": f"{OPERATIONS_MAX} operations and {BATCH_BYTES_MAX // MEBIBYTE} MiB",
        "a patch": f"{patch.CHANGES_MAX} operations",
        "a page": f"{PAGE_ITEMS} items, unless asked for, and {PAGE_BYTES // MEBIBYTE} MiB",
        "the id of an item": f"{containers.ID_BYTES_MAX} bytes",
        "the id of a database or container": f"{containers.NAME_CHARACTERS_MAX} characters",
        "a partition key": f"{partitions.KEY_BYTES_MAX} bytes",
        "a query": f"nested {DEPTH_MAX} deep",
    }
    return table(("limit of", "is"), list(rows.items()))


def render_cosmos_charges() -> str:
    rows = {
        "read": (
            [charges.read(size, is_strong=False) for size in (SMALL, LARGE)],
            "published; between them a straight line, in steps of a started KB",
        ),
        "read, strong or bounded staleness": (
            [charges.read(size, is_strong=True) for size in (SMALL, LARGE)],
            "published",
        ),
        "create, nothing indexed": (
            [charges.insert(size, 0) for size in (SMALL, LARGE)],
            "published",
        ),
        "replace or patch, nothing indexed": (
            [charges.replace(size, 0) for size in (SMALL, LARGE)],
            "published: twice a create",
        ),
        "delete": ([charges.delete(size) for size in (SMALL, LARGE)], "estimate"),
        "query or feed that looked at one item": (
            [charges.query([size], is_strong=False) for size in (SMALL, LARGE)],
            QUERY_SOURCE,
        ),
        "each indexed property": (
            [charges.INDEXED_PROPERTY] * 2,
            "estimate: in a create; a replace takes twice as much",
        ),
        "metadata": ([charges.METADATA] * 2, "estimate"),
        "refusal": ([charges.REFUSAL] * 2, "estimate; a failed batch is one"),
    }
    return table(
        ("charge", "request units at 1 KB / 100 KB", "source"),
        [(what, f"{small:g} / {large:g}", why) for what, ((small, large), why) in rows.items()],
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "cosmos-limits": render_cosmos_limits,
    "cosmos-charges": render_cosmos_charges,
}


def generate(text: str) -> str:
    """Return a page with every table as the code has it; a name without table is KeyError."""

    def write_table(place: re.Match[str]) -> str:
        return f"<!-- generated: {place[1]} -->\n\n{TABLES[place[1]]()}\n\n<!-- end -->"

    return PLACE.sub(write_table, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(generate(page.read_text("utf-8")), "utf-8")

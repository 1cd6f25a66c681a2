"""The tables that repeat the code are what the code says now."""

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
GENERATOR: dict[str, Any] = runpy.run_path(str(DOCS / "generate.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_tables_of_a_page_are_up_to_date(page: Path) -> None:
    generate: Callable[[str], str] = GENERATOR["generate"]

    assert page.read_text("utf-8") == generate(page.read_text("utf-8")), "run docs/generate.py"


def test_every_table_has_one_place() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)

    assert Counter(GENERATOR["PLACE"].findall(text)) == Counter(GENERATOR["TABLES"].keys())

"""The tables that repeat the code are what the code says now."""

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.site.generate import COMMAND, PAGES, PLACE, ROOT, TABLES, generate


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_tables_of_a_page_are_up_to_date(page: Path) -> None:
    assert page.read_text("utf-8") == generate(page.read_text("utf-8")), f"run {COMMAND}"


def test_every_table_has_one_place() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    places = Counter(PLACE.findall(text))

    assert places == Counter(TABLES.keys())
    assert text.count("<!-- generated: ") == len(TABLES) == text.count("<!-- end -->")


def test_a_table_that_is_out_of_date_is_replaced_and_nothing_else_of_the_page() -> None:
    text = "Before.\n\n<!-- generated: measures -->\n\n| old |\n\n<!-- end -->\n\nAfter.\n"

    written = generate(text)

    assert "| old |" not in written
    assert "`lockstep.effects`" in written
    assert re.sub(PLACE, "", written) == "Before.\n\n\n\nAfter.\n"

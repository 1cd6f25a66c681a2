"""The page about what Lockstep began with: every statement is met or refused, with a place."""

import re

from tests.docs.pages import ROOT, page

TABLES = page("docs/seeds.md").tables
ROWS = [row for table in TABLES for row in table.rows]
REFUSALS = "adr/0091-what-was-asked-for-and-is-refused.md"


def places(where: str) -> list[str]:
    """The pages and files that a cell leads to."""
    return re.findall(r"\]\(([^)#]+)", where) + re.findall(r"`(\w+/[\w./]+\.py)`", where)


def test_no_statement_is_open() -> None:
    assert [table.head for table in TABLES] == [["statement", "stands", "where"]] * 5
    assert [len(table.rows) for table in TABLES] == [22, 13, 11, 11, 26]
    assert {stands for _, stands, _ in ROWS} == {"built", "otherwise", "refused"}


def test_every_statement_leads_to_a_place_that_is_there() -> None:
    assert [statement for statement, _, where in ROWS if not places(where)] == []
    named = {place for _, _, where in ROWS for place in places(where)}
    there = {one for one in named if (ROOT / "docs" / one).exists() or (ROOT / one).exists()}
    assert named == there


def test_what_is_refused_or_met_otherwise_leads_to_a_reason() -> None:
    assert [s for s, stands, where in ROWS if stands == "refused" and REFUSALS not in where] == []
    # A page of promises says what holds in place of what was asked for.
    reasons = ("adr/", "guarantees.md", "handlers.md", "publishing.md", "glossary.md")
    met = [(s, where) for s, stands, where in ROWS if stands == "otherwise"]
    assert [s for s, where in met if not any(one in where for one in reasons)] == []

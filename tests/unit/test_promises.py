"""Each promise is held by tests that are there, and docs/guarantees.md names some of them."""

import re
from pathlib import Path

import pytest

from tests.mutants.catalogue import SAMPLE
from tests.promises import TESTS_BY_PROMISE

ROOT = Path(__file__).parents[2]
PROMISES = [f"P{number}" for number in range(1, 10)]


def named_by_the_page() -> dict[str, set[str]]:
    """The files under `tests` that each promise's chapter of the page links to."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    chapters = re.findall(r"^## (P\d): (.+?)(?=^## )", page, re.DOTALL | re.MULTILINE)
    return {name: {*re.findall(r"\(\.\./(tests/\S+\.py)\)", text)} for name, text in chapters}


def test_every_promise_of_the_page_is_held_by_tests_in_memory() -> None:
    assert list(TESTS_BY_PROMISE) == PROMISES == list(named_by_the_page())
    assert all(TESTS_BY_PROMISE.values())


@pytest.mark.parametrize("promise", PROMISES)
def test_the_files_are_there_and_the_page_names_one_of_them(promise: str) -> None:
    files = TESTS_BY_PROMISE[promise]

    assert [one for one in files if not (ROOT / one).is_file()] == []
    assert named_by_the_page()[promise] & {*files}


@pytest.mark.parametrize("promise", PROMISES)
def test_two_mutants_of_each_promise_are_found_by_its_own_files(promise: str) -> None:
    judges = [one.tests for one in SAMPLE if one.promise == promise]

    assert len(judges) == 2
    assert {*judges} <= {*TESTS_BY_PROMISE[promise]}

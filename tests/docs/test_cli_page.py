"""docs/cli.md says which commands there are, and how they end."""

import re

import pytest

from cli import failures
from cli.__main__ import app, new
from tests.docs.reference_page import DOCS, rows

PAGE = DOCS / "cli.md"


def test_every_command_is_on_the_page_and_no_other() -> None:
    cells = rows("Look after a running app", PAGE)
    named = {word for cell in cells for word in re.findall(r"(?:^|`)((?:new )?[a-z-]+)", cell)}

    added = {f"new {one.name}" for one in new.registered_commands}
    assert named == {one.name for one in app.registered_commands} | added


def test_every_exit_status_is_on_the_page_and_in_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = {
        *(failures.DONE, failures.REFUSED, failures.MISUSED),
        *(failures.NO_ANSWER, failures.INTERRUPTED),
    }

    assert {int(status) for status in rows("How it ends", PAGE)} == known
    assert {int(n) for n in re.findall(r"\b(\d+) [a-z]", failures.EXIT_STATUSES)} == known

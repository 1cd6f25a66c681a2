"""The page about Spark says what the code does: options, mapping fields, columns, standings."""

import json
import re
from dataclasses import fields
from pathlib import Path

from spark import feed, reconcile, replay
from spark.mapping import Mapping
from spark.options import OWN, ROWS_MAX_DEFAULT
from spark.planning import Standing
from spark.schemas import EVENTS

PAGE = (Path(__file__).parents[2] / "docs/spark.md").read_text()


def first_cells(head: str) -> set[str]:
    """What the first column of a table marks as code, or says; the table begins with this head."""
    table = PAGE.split(f"\n{head}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    cells = [line.split("|")[1] for line in table]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell) or [cell.strip()]}


def test_every_option_of_a_write_is_on_the_page() -> None:
    assert first_cells("| option | default | meaning |") == OWN | {"any app setting"}
    assert f"| `batch` | {ROWS_MAX_DEFAULT} |" in PAGE


def test_every_field_of_a_mapping_is_on_the_page_and_the_example_is_one() -> None:
    example = PAGE.split("```json\n", 1)[1].split("```", 1)[0]

    assert first_cells("| field | meaning |") == {field.name for field in fields(Mapping)}
    assert Mapping.of(json.loads(example)).watermark == "seen"


def test_every_standing_and_every_column_is_on_the_page() -> None:
    standings = first_cells("| a row is | when | it becomes |")

    assert {name.removeprefix("a ") for name in standings} == {s.value for s in Standing}
    assert first_cells("| column | type | |") == set(EVENTS.names)


def test_every_word_of_the_command_lines_that_the_page_uses_is_known() -> None:
    known = " ".join(program.parser().format_help() for program in (feed, reconcile, replay))
    sparks = {"--py-files", "--conf", "--archives"}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) - sparks

    assert {word for word in used if word not in known} == set()
    assert len(used) > 12

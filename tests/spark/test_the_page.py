"""The page about Spark says what the code does: options, mapping fields, columns, standings."""

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shared.domain.message import BODY_BYTES_MAX, ID_CHARACTERS_MAX, STORED_BYTES_MAX
from spark.facts import list_row_checks
from spark.feed import build_feed_parser
from spark.files import DISK, RENAME_REFUSES
from spark.incremental import Standing
from spark.mapping import (
    WHOLE_NUMBERS,
    SourceFormat,
    SourceMapping,
    require_column_types,
    require_lateness,
)
from spark.options import WRITE_OPTIONS, WriteOptions
from spark.reconcile import build_reconcile_parser
from spark.reconciliation import FindingKind
from spark.replay import build_replay_parser
from spark.schemas import EVENTS

PAGE = (Path(__file__).parents[2] / "docs/spark.md").read_text()


def first_cells(head: str) -> set[str]:
    """What the first column of a table marks as code, or says; the table begins with this head."""
    table = PAGE.split(f"\n{head}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    cells = [line.split("|")[1] for line in table]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell) or [cell.strip()]}


def test_every_option_of_a_write_is_on_the_page() -> None:
    assert first_cells("| option | default | meaning |") == WRITE_OPTIONS | {"any app setting"}
    defaults = {field.name: field.default for field in fields(WriteOptions)}
    for name in ("batch", "owner_level", "patience"):
        assert f"| `{name}` | {defaults[name]:g} |" in PAGE


def test_every_field_of_a_mapping_is_on_the_page_and_the_example_is_one() -> None:
    example = PAGE.split("```json\n", 1)[1].split("```", 1)[0]

    assert first_cells("| field | meaning |") == {field.name for field in fields(SourceMapping)}
    assert SourceMapping.parse(json.loads(example)).watermark == "seen"
    assert {form.value for form in SourceFormat} <= set(re.findall(r"`(\w+)`", row_of("format")))
    kinds = row_of("columns").partition("type: ")[2].rstrip(" |").replace("(p,s)", "(9,2)")
    for kind in kinds.replace("whole numbers", ", ".join(WHOLE_NUMBERS)).split(", "):
        require_column_types({"column": kind})
    for lateness in re.findall(r"`(\d[^`]+)`", row_of("lateness")):
        require_lateness(lateness, "timestamp")


def row_of(name: str) -> str:
    """A row of a table by the name in its first cell."""
    return next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))


@pytest.mark.spark
def test_every_finding_every_reason_and_every_file_system_is_on_the_page(
    spark: SparkSession,
) -> None:
    mapping = SourceMapping.parse(json.loads(PAGE.split("```json\n", 1)[1].split("```", 1)[0]))
    reasons = {why.partition(" ")[0] for why, _ in list_row_checks(mapping)} | {"repeated"}
    told = {reason.partition(" ")[0] for reason in first_cells("| reason | |")}

    assert told == reasons
    assert first_cells("| finding | |") == {finding.value for finding in FindingKind}
    sentence = PAGE.split("that gives a name once: ", 1)[1].split("; others", 1)[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == {DISK, *RENAME_REFUSES}
    for limit in (BODY_BYTES_MAX, STORED_BYTES_MAX, ID_CHARACTERS_MAX):
        assert f" {limit:,} " in PAGE


@pytest.mark.spark
def test_spark_knows_every_setting_of_its_own_that_the_page_names(spark: SparkSession) -> None:
    named = set(re.findall(r"`(spark\.sql\.[\w.]+)`", PAGE))

    assert len(named) >= 4
    for name in named:
        assert spark.conf.get(name)


def test_every_standing_and_every_column_is_on_the_page() -> None:
    standings = first_cells("| a row is | when | it becomes |")

    assert {name.removeprefix("a ") for name in standings} == {s.value for s in Standing}
    assert first_cells("| column | type | |") == set(EVENTS.names)


def test_every_word_of_the_command_lines_that_the_page_uses_is_known() -> None:
    parsers = (build_feed_parser(), build_reconcile_parser(), build_replay_parser())
    known = " ".join(parser.format_help() for parser in parsers)
    sparks = {"--py-files", "--conf", "--archives"}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) - sparks

    assert {word for word in used if word not in known} == set()
    assert len(used) > 12

"""The page about Spark says what the code does: options, mapping fields, columns, standings."""

import json
import re
from dataclasses import fields

from pyspark.sql import SparkSession

from shared.domain.message import BODY_BYTES_MAX_BY_SKU, ID_CHARACTERS_MAX, STORED_BYTES_MAX
from spark.check.reconciliation import FindingKind
from spark.feed import build_feed_parser
from spark.feeding.judging import Standing
from spark.job.files import DISK, RENAME_REFUSES
from spark.read.facts import list_row_checks
from spark.read.mapping import (
    WHOLE_NUMBERS,
    SourceFormat,
    SourceMapping,
    require_column_types,
    require_lateness,
)
from spark.reconcile import build_reconcile_parser
from spark.replay import build_replay_parser
from spark.schemas import EVENTS
from spark.send.options import WRITE_OPTIONS, WriteOptions
from tests.docs.pages import coded, page

PAGE = page("docs/spark.md")


def test_every_option_of_a_write_is_on_the_page() -> None:
    options = PAGE.table("option")

    assert options.names() == WRITE_OPTIONS | {"any app setting"}
    defaults = {field.name: field.default for field in fields(WriteOptions)}
    for name in ("batch", "owner_level", "patience"):
        assert options.column()[name] == f"{defaults[name]:g}"


def test_every_field_of_a_mapping_is_on_the_page_and_the_example_is_one() -> None:
    meanings = PAGE.table("field").column()

    assert set(meanings) == {field.name for field in fields(SourceMapping)}
    assert example().watermark == "seen"
    assert {form.value for form in SourceFormat} <= set(coded(meanings["format"]))
    kinds = meanings["columns"].partition("type: ")[2].replace("(p,s)", "(9,2)")
    for kind in kinds.replace("whole numbers", ", ".join(WHOLE_NUMBERS)).split(", "):
        require_column_types({"column": kind.strip("`").replace("...", "int")}, "table")
    for lateness in re.findall(r"`(\d[^`]+)`", meanings["lateness"]):
        require_lateness(lateness, "timestamp")


def example() -> SourceMapping:
    return SourceMapping.parse(json.loads(PAGE.programs("json")[0]))


def test_every_finding_every_reason_and_every_file_system_is_on_the_page(
    spark: SparkSession,
) -> None:
    reasons = {why.partition(" ")[0] for why, _ in list_row_checks(example())}
    reasons |= {"repeated", Standing.UNSENDABLE}
    told = {reason.partition(" ")[0].rstrip(":") for reason in PAGE.table("reason").names()}

    assert told == reasons
    assert PAGE.table("finding").names() == {finding.value for finding in FindingKind}
    assert {DISK, *RENAME_REFUSES} <= set(PAGE.words)
    for limit in (*BODY_BYTES_MAX_BY_SKU.values(), STORED_BYTES_MAX, ID_CHARACTERS_MAX):
        assert re.search(rf"[ (]{limit:,} ", PAGE.text)


def test_spark_knows_every_setting_of_its_own_that_the_page_names(spark: SparkSession) -> None:
    named = set(re.findall(r"`(spark\.sql\.[\w.]+)`", PAGE.text))

    assert len(named) >= 4
    for name in named:
        assert spark.conf.get(name)


def test_every_standing_and_every_column_is_on_the_page() -> None:
    standings = PAGE.table("a row is").names()

    assert {name.removeprefix("a ") for name in standings} == {s.value for s in Standing}
    assert PAGE.table("column").names() == set(EVENTS.names)


def test_every_word_of_the_command_lines_that_the_page_uses_is_known() -> None:
    parsers = (build_feed_parser(), build_reconcile_parser(), build_replay_parser())
    known = " ".join(parser.format_help() for parser in parsers)
    sparks = {"--py-files", "--conf", "--archives", "--deploy-mode"}
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE.text)) - sparks

    assert {word for word in used if word not in known} == set()
    assert len(used) > 12

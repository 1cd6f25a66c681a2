"""Feed a DataFrame: validate its rows, number them, and send them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from shared.settings import Settings, read_body_limit
from shared.wiring import listen
from spark.feeding.config import FeedConfig
from spark.feeding.incremental import IncrementalFeed, SendResult
from spark.feeding.judging import ChangePolicies, Standing, judge_as_new, plan_events
from spark.feeding.manifest import Manifest
from spark.feeding.rejects import RowCounts, account_for_rows, reject_unsendable
from spark.feeding.unhandled import Unhandled, look_for_unhandled
from spark.job.console import JobConsole
from spark.job.runtime import has_driver, require_driver
from spark.job.settings import read_app_settings
from spark.job.steps import is_in_account
from spark.read.facts import SourceFacts, extract_facts
from spark.read.mapping import SourceMapping
from spark.read.sources import filter_since, prepare_table
from spark.send.datasource import EventWriter, require_all_sent

JOB = "feed"
SILENT = JobConsole(JOB, is_quiet=True)


@dataclass(frozen=True, slots=True)
class FeedResult:
    """The counts of rows and messages, and in a dry run what no handler of the app takes."""

    rows: RowCounts = field(default_factory=RowCounts)
    sending: SendResult = field(default_factory=SendResult)
    unhandled: tuple[Unhandled, ...] = ()

    def __add__(self, other: "FeedResult") -> "FeedResult":
        unhandled = self.unhandled + other.unhandled
        return FeedResult(self.rows + other.rows, self.sending + other.sending, unhandled)


def feed(
    table: DataFrame,
    mapping: SourceMapping | Mapping[str, Any],
    options: FeedConfig,
    console: JobConsole = SILENT,
    *,
    is_batch: bool = False,
) -> FeedResult:
    """Validate the rows of any table, number them, and send them or what of them has changed.

    Each column of the mapping has its declared type or is text; the mapping's `format` and
    `options` say nothing here, and its watermark limits nothing: choose the rows yourself. Where it
    stops, running it again completes it. `is_batch` is for `foreachBatch`: a batch that comes again
    may replace its own rejects. Raises JobRefused, with the reason in one line, for what its caller
    can change, InvalidSettings, and what Spark raises if a task fails for good.
    """
    if not is_in_account(options.manifest):
        require_driver(table.sparkSession)
    if not has_driver(table.sparkSession):
        # Its tasks cannot be counted while they run.
        console = replace(console, is_quiet=True)
    if not isinstance(mapping, SourceMapping):
        mapping = SourceMapping.parse(mapping)
    if not options.dry_run:
        Settings.read(read_app_settings(options.settings))
    source = extract_facts(prepare_table(table, mapping), mapping)
    try:
        return feed_facts(source, options, console, is_batch=is_batch)
    finally:
        source.release()


def select_unfed(
    table: DataFrame,
    mapping: SourceMapping | Mapping[str, Any],
    options: FeedConfig,
    console: JobConsole = SILENT,
) -> DataFrame:
    """The rows of a table that are not older than what its last feed has read, by the watermark.

    It is the whole table if the mapping has no watermark, the options have no manifest, or nothing
    of the source was fed for the group. The choice is a condition on one column, which Spark hands
    to sources that can look rows up by it (JDBC, Delta, Parquet). Raises JobRefused.
    """
    if not isinstance(mapping, SourceMapping):
        mapping = SourceMapping.parse(mapping)
    if options.manifest is None or mapping.watermark is None:
        return table
    history = Manifest(table.sparkSession, options.manifest, options.settings).read_history()
    watermark = history.find_watermark(options.group, options.source)
    if watermark is not None:
        console.log(f"from {mapping.watermark} {watermark} on")
    elif history.steps:
        console.log(f"{options.group} has fed nothing of this source yet: reading all of it")
    return filter_since(table, mapping, watermark)


def feed_facts(
    source: SourceFacts, options: FeedConfig, console: JobConsole, *, is_batch: bool = False
) -> FeedResult:
    """Number facts, then send all of them or, by the manifest, those that changed."""
    with tell_of_run(options, console) as tell:
        result = number_and_send(source, options, console, is_batch=is_batch)
        tell(result)
    return result


@contextmanager
def tell_of_run(options: FeedConfig, console: JobConsole) -> Iterator[Callable[[FeedResult], None]]:
    """Tell of a run in a span with its counts, if the app settings say where spans go."""
    telemetry = None
    if not options.dry_run:
        settings = Settings.read(read_app_settings(options.settings))
        try:
            # The app sends a part of its spans. Runs of a feed are few, so all of them are sent.
            telemetry = listen(replace(settings, span_ratio=1.0))
        except ImportError as error:
            console.log(f"no span of this run is sent: {error}")
    if telemetry is None:
        yield lambda _result: None
        return
    with telemetry.span(JOB, None, group=options.group, source=options.source) as span:

        def tell(result: FeedResult) -> None:
            rows, sending = result.rows, result.sending
            standings = {n.replace(" ", "_"): count for n, count in sending.standings.items()}
            rejected = sum(rows.rejects.values())
            found = {"rows": rows.rows, "events": rows.events, "rejected": rejected}
            found |= {"resumed": sending.resumed, **standings}
            span.describe(**found, **asdict(sending.counts))

        yield tell


def number_and_send(
    source: SourceFacts, options: FeedConfig, console: JobConsole, *, is_batch: bool
) -> FeedResult:
    console.log(f"validating rows; rejected ones go to {options.rejects}")
    with console.show_progress("validating"):
        counts = account_for_rows(source, options.rejects, replace=is_batch)
    unhandled: tuple[Unhandled, ...] = ()
    if options.dry_run:
        unhandled = look_for_unhandled(source.facts, options.app, console)
    writer = EventWriter(options.rate, options.batch, lanes=options.lanes)
    if options.settings:
        writer = replace(writer, settings=options.settings)
    if options.manifest:
        manifest = Manifest(source.facts.sparkSession, options.manifest, options.settings)
        by_manifest = IncrementalFeed(manifest, options, writer, console)
        return FeedResult(counts, by_manifest.run(source, counts, is_batch=is_batch), unhandled)
    most = read_body_limit(read_app_settings(options.settings))
    classified, policies = judge_as_new(source.facts), ChangePolicies(body_bytes_max=most)
    rejects = None if options.dry_run else options.rejects
    reject = partial(reject_unsendable, classified, options.group, policies, rejects, console)
    if options.dry_run:
        return FeedResult(counts, SendResult(name_unsendable(reject())), unhandled)
    console.log("sending" + (f", {options.rate:g} a second" if options.rate else ""))
    events = plan_events(classified, options.group, policies)
    with console.show_progress("sending", counts.events) as display:
        sent = replace(writer, reports=display.reports).send(events, counts.events)
    # Only then is it worth while to ask the gate once more what it has held back.
    unsendable = name_unsendable(reject() if sent.sent != counts.events else {})
    require_all_sent(counts.events - sum(unsendable.values()), sent)
    return FeedResult(counts, SendResult(unsendable, counts=sent))


def name_unsendable(refused: Mapping[Standing, int]) -> dict[str, int]:
    return {Standing.UNSENDABLE.value: sum(refused.values())} if refused else {}

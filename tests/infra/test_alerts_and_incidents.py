"""The queries of the alerts, run over rows that the app itself wrote: incidents and quiet days."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from azure.monitor.opentelemetry.exporter import AzureMonitorMetricExporter
from azure.monitor.opentelemetry.exporter.export._base import ExportResult
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider

from functions.triggers.receive import receive_message
from functions.triggers.recover import sweep_journal
from shared.adapters.telemetry import EffectIds, OpenTelemetry
from shared.domain.errors import LockstepError, Unavailable
from shared.domain.message import Message
from shared.domain.saga.walk import Activity
from shared.engine.build import Services
from shared.engine.operate.heartbeats import SWEEP, Heartbeats
from shared.ports import StoreClock
from shared.testkit.injected_faults import ProcessKilled
from tests.business import LEASE_OVER, Outside, business, dying
from tests.deliveries import delivery_of
from tests.infra.kql import Row, run
from tests.infra.snapshots import of_type, read_snapshot
from tests.scenarios.test_when_a_task_hub_is_shared import App
from tests.world import IMPATIENT, REGIONS, World, message

CONNECTION = "InstrumentationKey=00000000-0000-0000-0000-000000000001"
MINUTE = 60.0
QUERIES = "Microsoft.Insights/scheduledQueryRules"


class Kept(AzureMonitorMetricExporter):
    """The exporter of the app, whose records become rows of a workspace in place of leaving."""

    def __init__(self) -> None:
        super().__init__(connection_string=CONNECTION, disable_offline_storage=True)
        self.minute = 0
        self.rows: list[Row] = []

    def _transmit(self, envelopes: Any, _skip_rate_limit: bool = False) -> ExportResult:
        for envelope in envelopes:
            data = envelope.data.base_data
            (point,) = data.metrics
            self.rows.append(
                {
                    "TimeGenerated": self.minute,
                    "Name": point.name,
                    "Sum": point.value,
                    "ItemCount": point.count or 1,
                    # What ingestion makes of it where the exporter says nothing is not known.
                    "Min": point.min,
                    "Max": point.max,
                    "Properties": data.properties,
                }
            )
        return ExportResult.SUCCESS


class Region:
    """What one region tells: its meters, and the workspace that they go to."""

    def __init__(self, name: str) -> None:
        self.exporter = Kept()
        reader = PeriodicExportingMetricReader(self.exporter, float("inf"))
        self.meters = MeterProvider([reader], shutdown_on_exit=False)
        spans = TracerProvider(id_generator=EffectIds(), shutdown_on_exit=False)
        self.telemetry = OpenTelemetry(name, spans, self.meters)


@dataclass
class Leases:
    """The documents beside the leases, with the time at which each was written."""

    now: Callable[[], float]
    written: dict[str, float] = field(default_factory=dict)
    takes_writes: bool = True

    async def ages(self) -> Mapping[str, float]:
        return {name: self.now() - at for name, at in self.written.items()}

    async def record(self, document_id: str, text: str | None = None) -> None:
        if not self.takes_writes:
            raise Unavailable("the write region is lost")
        self.written[document_id] = self.now()

    async def read(self, document_id: str, clock: StoreClock | None = None) -> str | None:
        raise NotImplementedError


class Day:
    """Two regions at work, a minute at a time: each minute they process, sweep, look and tell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outside = Outside()
        self.regions = {name: Region(name) for name in REGIONS}
        telemetry = {name: one.telemetry for name, one in self.regions.items()}
        self.world = World(telemetry=telemetry, handlers=business(self.outside), policy=IMPATIENT)
        self.leases = Leases(self.world.clock.now)
        self.silent: set[str] = set()
        self.minute, self.sent = 0, 0
        monkeypatch.setattr("shared.engine.operate.heartbeats.time.monotonic", self.world.clock.now)
        self.heartbeats = {
            name: Heartbeats(
                *(self.leases, name, REGIONS, None, telemetry[name]),
                journal=self.world.journal,
                has_sagas=True,
            )
            for name in REGIONS
        }

    async def pass_minutes(
        self, count: int, each: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """So many minutes, in each of which something happens besides."""
        for _ in range(count):
            self.minute += 1
            await self.world.clock.sleep(MINUTE)
            sent = message(self.sent, session="steady", kind="account.bill")
            self.sent += 1
            for name in REGIONS:
                await self.receive(name, sent)
            if each is not None:
                await each()
            for name in REGIONS:
                await self.tell(name)

    async def receive(self, region: str, one: Message, late_seconds: float = 0.2) -> None:
        """A delivery to a region, unless that is lost; the broker has had it for a while."""
        if region not in self.silent:
            enqueued = datetime.now(UTC) - timedelta(seconds=late_seconds)
            delivery = delivery_of(one)
            delivery._ServiceBusMessage__enqueued_time_utc = enqueued  # type: ignore[attr-defined]
            with suppress(LockstepError, RuntimeError):
                await receive_message(self.worker(region), delivery)

    def worker(self, region: str) -> Services:
        return self.world.east if region == "east" else self.world.west

    async def tell(self, region: str) -> None:
        if region in self.silent:
            return
        heard = self.heartbeats[region]
        for heard_of in (f"{region}..0", f"sagas-{region}..0", f"$timer-{region}-sagas"):
            if self.leases.takes_writes and heard_of.removesuffix("..0") not in self.silent:
                self.leases.written[heard_of] = self.world.clock.now()
        await sweep_journal(self.worker(region).recovery)
        if heard.is_due():
            await heard.note(SWEEP)
            await heard.report()
        exporter = self.regions[region].exporter
        exporter.minute = self.minute
        self.regions[region].meters.force_flush()

    def told(self, region: str, **others: Sequence[Row]) -> set[str]:
        """The symptoms that somebody in a region was told of, and by no more than these rows."""
        rows = {"AppMetrics": self.regions[region].exporter.rows, **others}
        return {
            str(one["symptom"]) for one in symptoms() if self.is_told(one, rows, self.minute + 10)
        }

    @staticmethod
    def is_told(one: Any, rows: Mapping[str, Sequence[Row]], last: int) -> bool:
        """Whether a rule fired: every five minutes it looks at the ten minutes before."""
        in_a_row = 0
        for now in range(5, last + 1, 5):
            window = {
                table: [row for row in whole if now - 10 < row["TimeGenerated"] <= now]
                for table, whole in rows.items()
            }
            values = [row["Value"] for row in run(str(one["query"]), window)]
            found = sum(values) if one["aggregation"] == "Total" else max(values, default=0)
            holds = bool(values) and found > one["threshold"]
            in_a_row = in_a_row + 1 if holds else 0
            if in_a_row >= one["periods"]:
                return True
        return False


@cache
def symptoms() -> Any:
    """Each query that the first region asks, with its rule."""
    found = []
    for rule in of_type(read_snapshot("everything"), QUERIES, REGIONS[0]):
        (condition,) = rule["properties"]["criteria"]["allOf"]
        found.append(
            {
                "symptom": rule["properties"]["displayName"].partition(": ")[2],
                "query": condition["query"],
                "aggregation": condition["timeAggregation"],
                "threshold": condition["threshold"],
                "periods": condition["failingPeriods"]["minFailingPeriodsToAlert"],
            }
        )
    return found


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Iterator[Day]:
    """Two healthy regions early in the morning."""
    monkeypatch.setenv("APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL", "true")
    monkeypatch.setenv("APPLICATIONINSIGHTS_SDKSTATS_DISABLED", "true")
    whole = Day(monkeypatch)
    yield whole
    for one in whole.regions.values():
        one.meters.shutdown()


async def test_a_quiet_day_is_quiet(day: Day) -> None:
    async def copies() -> None:
        """The senders try again, as they do every day."""
        for name in REGIONS:
            await day.receive(name, message(day.sent - 1, session="steady", kind="account.bill"))

    await day.pass_minutes(60, copies)

    counted = {str(row["Name"]) for row in day.regions["east"].exporter.rows}
    assert counted >= {"lockstep.effects", "lockstep.pending.age", "lockstep.blocked.queues"}
    assert [day.told(name) for name in REGIONS] == [set(), set()]


async def test_when_a_deployment_loses_owners_nobody_is_told(day: Day) -> None:
    await day.pass_minutes(10)
    await day.pass_minutes(2, lambda: lose_an_owner(day))
    await day.pass_minutes(30)

    assert any(row["Name"] == "lockstep.takeovers" for row in day.regions["east"].exporter.rows)
    assert [day.told(name) for name in REGIONS] == [set(), set()]


async def lose_an_owner(day: Day) -> None:
    """A worker is lost with a claim, which the region takes over."""
    paid = message(0, session=f"paid-{day.minute}", kind="account.pay")
    day.outside.before = dying(day.world)
    with suppress(ProcessKilled, RuntimeError):
        await receive_message(day.world.east, delivery_of(paid))
    day.outside.before = Outside().before
    await day.world.clock.sleep(LEASE_OVER)
    await receive_message(day.world.east, delivery_of(paid))


async def test_when_owners_are_lost_all_the_time_somebody_is_told(day: Day) -> None:
    await day.pass_minutes(45, lambda: lose_an_owner(day))

    assert day.told("east") == {"A session does not move and is not halted"}


async def test_when_a_region_is_lost_the_other_one_tells(day: Day) -> None:
    await day.pass_minutes(10)
    day.silent |= {"west"}
    with day.world.without("west"):
        await day.pass_minutes(10)

    # Outputs that the west misses are no output that is late in the east.
    assert day.told("east") == {"Nothing is heard of another region"}
    assert day.told("west") == set()


async def test_when_a_feed_is_silent_its_region_tells(day: Day) -> None:
    await day.pass_minutes(5)
    day.silent |= {"sagas-west"}
    await day.pass_minutes(15)

    assert day.told("east") == set()
    assert day.told("west") == {"A feed or a timer is silent"}


async def test_when_the_journal_takes_no_writes_both_tell(day: Day) -> None:
    await day.pass_minutes(5)
    day.leases.takes_writes = False
    await day.pass_minutes(15)

    for name in REGIONS:
        assert "The journal's write region is lost" in day.told(name)
        assert "Nothing is heard of another region" not in day.told(name)


async def test_when_a_session_is_halted_somebody_is_told(day: Day) -> None:
    async def burn() -> None:
        await day.receive("east", message(0, session="burnt", kind="account.burn"))

    await day.pass_minutes(5)
    await day.pass_minutes(1, burn)
    await day.pass_minutes(5)

    assert day.told("east") == {"Something needs attention"}


async def test_when_a_number_is_missing_somebody_is_told_after_a_while(day: Day) -> None:
    async def leave_out() -> None:
        await day.receive("east", message(1, session="holey"))

    await day.pass_minutes(1, leave_out)
    await day.pass_minutes(7)
    assert day.told("east") == set()
    await day.pass_minutes(10)
    assert day.told("east") == {"Something needs attention"}


async def test_when_a_queue_is_missing_its_region_tells_that_outputs_are_blocked(day: Day) -> None:
    await day.pass_minutes(5)
    day.world.bus.missing |= {("east", "out")}
    await day.pass_minutes(10)

    assert day.told("east") == {"Outputs are blocked"}
    assert day.told("west") == set()


async def test_when_a_namespace_takes_nothing_its_region_tells_that_outputs_are_late(
    day: Day,
) -> None:
    await day.pass_minutes(5)
    with day.world.without("east"):
        await day.pass_minutes(20)

    assert day.told("east") == {"Outputs are late"}
    assert day.told("west") == set()


async def test_when_a_queue_is_slow_somebody_is_told_and_not_for_one_message_that_fails(
    day: Day,
) -> None:
    async def poisoned() -> None:
        await day.receive("east", message(0, session="hints", kind="account.hint"), 4_000.0)

    await day.pass_minutes(1, poisoned)
    await day.pass_minutes(5)
    assert day.told("east") == set()

    async def late() -> None:
        for n in range(3):
            await day.receive("east", message(0, session=f"late-{day.minute}-{n}"), 900.0)

    await day.pass_minutes(5, late)
    assert day.told("east") == {"A full queue makes only a few messages a second"}


async def test_when_two_applications_share_a_task_hub_somebody_is_told(day: Day) -> None:
    async def step_of_others() -> None:
        services = replace(day.world.east, own_queues={"east": "ours.example/in"})
        await App(services).activities[Activity.STEP.value](
            {"key": "O-1", "queue": "theirs.example/in"}
        )

    await day.pass_minutes(5)
    await day.pass_minutes(1, step_of_others)

    assert day.told("east") == {"Two applications share a task hub"}


async def test_what_azure_writes_of_a_cap_and_of_a_large_session_is_found(day: Day) -> None:
    capped = {
        "TimeGenerated": 3,
        "Category": "Ingestion",
        "Operation": "Data collection Status",
        "Detail": "OverQuota: the daily quota was reached",
        "Level": "Warning",
    }
    other = {**capped, "Detail": "Data of type X was dropped"}
    large = {"TimeGenerated": 3, "PartitionKey": '["fat"]', "SizeKb": 16_000_000, "RegionName": ""}

    assert day.told("east", _LogOperation=[other]) == set()
    assert day.told("east", _LogOperation=[capped]) == {"Telemetry stops for the day"}
    assert day.told("east", CDBPartitionKeyStatistics=[large]) == {"A session nears its 20 GB"}


async def test_when_the_archive_has_stopped_somebody_is_told(day: Day) -> None:
    archiving = day.world.worker("east", replace(IMPATIENT, keeps_inputs=True))

    async def compact() -> None:
        await archiving.compactor.compact()

    await day.pass_minutes(5)
    await day.pass_minutes(1, compact)

    assert day.told("east") == {"The archive has stopped"}


def test_every_query_has_an_incident() -> None:
    source = Path(__file__).read_text("utf-8")

    asked = {str(one["symptom"]) for one in symptoms()}
    assert [symptom for symptom in asked if f'"{symptom}"' not in source] == []


def test_every_query_is_of_what_is_never_sampled() -> None:
    asked = {str(one["query"]).partition(" ")[0] for one in symptoms()}

    assert asked == {"AppMetrics", "_LogOperation", "CDBPartitionKeyStatistics"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('AppMetrics | where Nmae == "x" | project TimeGenerated, Value = Sum', "no column 'Nmae'"),
        ('AppMetrics | where Name == "x" | top 3', "top is not among"),
        ("AppMetrics | project TimeGenerated, Value = Sum extra", "'extra' stands where"),
    ],
)
def test_a_query_with_an_error_is_refused(query: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run(query, {})

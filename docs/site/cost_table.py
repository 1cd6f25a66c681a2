"""The month's bill of a deployment: what the templates create, what was counted, and list prices.

Resources are those of `infra/snapshots/default.snapshot.json`, which Microsoft's compiler made of
the templates' defaults. Counted quantities are docs/bench.md's; estimates say so beside them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, prod
from pathlib import Path
from typing import Any

from docs.site.markdown import table

INFRA = Path(__file__).parents[2] / "infra"
HOURS = 730
SECONDS = HOURS * 3600
MILLION = 1_000_000

# US dollars. List prices of the United States, noted on 2026-11-27 and not fetched on that day.
PRICES: Mapping[str, tuple[float, str]] = {
    "premium unit": (677.08, "Service Bus Premium: a messaging unit, a month"),
    "standard base": (
        10.0,
        "Service Bus Standard: a subscription, a month, with 13 million operations",
    ),
    "standard to 100": (0.80, "Service Bus Standard: a million operations, from 13 to 100 million"),
    "standard": (0.50, "Service Bus Standard: a million operations, from 100 to 2,500 million"),
    "warm": (0.000004, "Flex Consumption: a GB-second of an always-ready instance"),
    "warm at work": (0.000016, "Flex Consumption: the same while it executes, in addition"),
    "on demand": (0.000026, "Flex Consumption: a GB-second of another instance while it executes"),
    "executions": (0.40, "Flex Consumption: a million executions"),
    "autoscale": (0.012, "Cosmos DB: 100 RU/s with autoscale, an hour and a region"),
    "critical": (
        0.016,
        "Cosmos DB: the same in the Business Critical tier (estimate: as for several writers)",
    ),
    "journal": (0.25, "Cosmos DB: a GB stored, a month and a region"),
    "logs": (2.30, "Azure Monitor: a GB of logs, traces and metrics"),
    "log rule": (1.50, "Azure Monitor: an alert rule with a query every 5 minutes, a month"),
    "metric series": (0.10, "Azure Monitor: a time series of a metric alert, a month"),
    "availability test": (0.0006, "Azure Monitor: a run of an availability test"),
    "traffic": (0.02, "a GB between regions of a continent"),
    "endpoint": (7.30, "a private endpoint, a month"),
    "zone": (0.50, "a private DNS zone, a month"),
    "front door": (35.0, "Azure Front Door Standard, a month"),
}


@dataclass(frozen=True, slots=True)
class Size:
    """A load: messages of 1 kB a month, one after another in long sessions, without outputs."""

    name: str
    messages: float
    by_http: bool = False
    sku: str = "Standard"
    units: int = 0

    @property
    def a_second(self) -> float:
        return self.messages / SECONDS

    # Both regions together, counted in memory (docs/bench.md): what a message takes until it is
    # acknowledged, one more for each of two feeds, and 7 to be compacted.
    @property
    def request_units(self) -> float:
        return (40.3 if self.by_http else 8.3) + 2 + 7

    # Measured: 0.9 kB of spans by HTTP, of which a queue makes less than half. Estimated: 0.3 kB
    # of the host.
    @property
    def telemetry_kilobytes(self) -> float:
        return (0.9 if self.by_http else 0.4) + 0.3


A_DAY = HOURS / 24
SIZES = (
    Size("trial: 1,000 messages a day", 1_000 * A_DAY),
    Size("a million a day, by queue", MILLION * A_DAY),
    Size("a million a day, by HTTP", MILLION * A_DAY, by_http=True),
    Size("1,000 a second, by queue", 1_000 * SECONDS, sku="Premium", units=2),
    Size("1,000 a second, by HTTP", 1_000 * SECONDS, by_http=True, sku="Premium", units=2),
)
WORKED = SIZES[1]
# Counted: sends and completions of one message in both regions.
OPERATIONS = 6
# Measured once with the real host on two cores, of one call of a session.
MESSAGES_OF_AN_INSTANCE = 230
# The change feed is asked every 5 s, and an execution is billed for a second at least.
FEED_RUNS = SECONDS / 5
# Estimates: an entry in the journal, and a message with its properties.
ENTRY_KILOBYTES, MESSAGE_KILOBYTES, RETENTION_DAYS = 1.5, 1.8, 7
# Measured: two idle regions, a month. At work it is three times that.
METRICS_GIGABYTES = 0.35


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a deployment creates that is paid for."""

    regions: int
    warm: Mapping[str, int]
    memory: float
    journal_regions: int
    containers: Sequence[int]
    is_critical: bool
    gigabytes_max: float
    log_rules: int
    metric_series: int
    test_runs: float
    sessions: int


@cache
def read_snapshot(name: str) -> list[dict[str, Any]]:
    text = (INFRA / "snapshots" / f"{name}.snapshot.json").read_text("utf-8")
    return list(json.loads(text)["predictedResources"])


def of_type(snapshot: str, kind: str) -> Iterator[dict[str, Any]]:
    return (one for one in read_snapshot(snapshot) if one["type"] == kind)


def read_deployment(snapshot: str = "default") -> Deployment:
    """Return what the templates create with their defaults, or with everything switched on."""
    apps = list(of_type(snapshot, "Microsoft.Web/sites"))
    scale = apps[0]["properties"]["functionAppConfig"]["scaleAndConcurrency"]
    account = next(of_type(snapshot, "Microsoft.DocumentDB/databaseAccounts"))["properties"]
    kind = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
    options = (one["properties"]["options"] for one in of_type(snapshot, kind))
    workspace = next(of_type(snapshot, "Microsoft.OperationalInsights/workspaces"))
    tests = (one["properties"] for one in of_type(snapshot, "Microsoft.Insights/webtests"))
    alerts = of_type(snapshot, "Microsoft.Insights/metricAlerts")
    host = json.loads((INFRA.parent / "host.json").read_text("utf-8"))["extensions"]
    return Deployment(
        regions=len(apps),
        warm={one["name"]: one["instanceCount"] for one in scale["alwaysReady"]},
        memory=scale["instanceMemoryMB"] / 1024,
        journal_regions=len(account["locations"]),
        containers=[one["autoscaleSettings"]["maxThroughput"] for one in options],
        is_critical=bool(account["capabilities"]),
        gigabytes_max=workspace["properties"]["workspaceCapping"]["dailyQuotaGb"] * A_DAY,
        log_rules=len(list(of_type(snapshot, "Microsoft.Insights/scheduledQueryRules"))),
        metric_series=sum(count_series(one["properties"]["criteria"]) for one in alerts),
        test_runs=sum(SECONDS / one["Frequency"] * len(one["Locations"]) for one in tests),
        sessions=host["serviceBus"]["maxConcurrentSessions"],
    )


def count_series(criteria: Mapping[str, Any]) -> int:
    """Return how many series a metric alert watches: one for each value of its dimensions."""
    found = criteria.get("allOf", [{}])
    return sum(prod(len(d["values"]) for d in one.get("dimensions", [])) for one in found)


def price(name: str, quantity: float) -> float:
    return PRICES[name][0] * quantity


def bill(size: Size, made: Deployment) -> dict[str, float]:
    """Return the month's rows in US dollars."""
    return {
        "Service Bus": price_bus(size, made),
        "instances that are always ready": price(
            "warm", sum(made.warm.values()) * made.regions * made.memory * SECONDS
        ),
        "executing": price_work(size, made),
        "journal: throughput": price_units(size, made),
        "journal: leases": price_throughput(made, made.containers[-1] / 10),
        "journal: storage": price(
            "journal",
            size.messages
            / A_DAY
            * RETENTION_DAYS
            * ENTRY_KILOBYTES
            / MILLION
            * made.journal_regions,
        ),
        "logs, traces and metrics": price("logs", measure_telemetry(size, made)),
        "alerts and availability tests": price_alerts(made),
        "traffic between regions": price(
            "traffic",
            size.messages
            / MILLION
            * (
                MESSAGE_KILOBYTES * (made.regions - 1)
                + ENTRY_KILOBYTES * (made.journal_regions - 1)
            ),
        ),
    }


def price_bus(size: Size, made: Deployment) -> float:
    if size.sku == "Premium":
        return price("premium unit", size.units * made.regions)
    # Estimate: each session that an instance could take asks once a minute while there is none.
    idle = made.sessions * made.regions * HOURS * 60
    operations = (size.messages * OPERATIONS + idle) / MILLION
    above = price("standard to 100", min(max(operations - 13, 0), 87))
    return price("standard base", 1) + above + price("standard", max(operations - 100, 0))


def price_work(size: Size, made: Deployment) -> float:
    """Each execution is paid for a second at least; those that overlap are paid once."""
    busy = ceil(size.a_second / MESSAGES_OF_AN_INSTANCE)
    groups = {"function:receive": (size.messages, busy), "function:sweep": (SECONDS / 15, 1)}
    taken = size.messages / made.regions if size.by_http else 0
    asked = made.test_runs / made.regions
    groups["http"] = (taken + asked, max(1, ceil(busy / made.regions) if size.by_http else 1))
    seconds = {"warm at work": 0.0, "on demand": 0.0}
    for name, (runs, instances) in groups.items():
        warm = min(instances, made.warm.get(name, 0))
        seconds["warm at work"] += min(runs, warm * SECONDS)
        seconds["on demand"] += min(max(runs - warm * SECONDS, 0), (instances - warm) * SECONDS)
    # One feed finds what was left, and another begins sagas, where there are any.
    feeds = 2 if "durable" in made.warm else 1
    runs = min(FEED_RUNS, size.messages + HOURS * 12 * made.regions) * feeds
    seconds["on demand"] += runs
    executions = (runs + sum(runs for runs, _ in groups.values())) * made.regions / MILLION
    of_time = sum(price(name, s * made.memory * made.regions) for name, s in seconds.items())
    return of_time + price("executions", executions)


def price_units(size: Size, made: Deployment) -> float:
    # Autoscale is paid by the busiest second of each hour, and a tenth of its ceiling at least.
    return price_throughput(made, max(made.containers[0] / 10, size.a_second * size.request_units))


def price_throughput(made: Deployment, units: float) -> float:
    kind = "critical" if made.is_critical else "autoscale"
    return price(kind, units / 100 * HOURS * made.journal_regions)


def measure_telemetry(size: Size, made: Deployment) -> float:
    """Return gigabytes; the daily cap of each region's workspace cuts off what is more."""
    metrics = METRICS_GIGABYTES * (3 if size.messages > MILLION else 1)
    spans = size.messages * size.telemetry_kilobytes / MILLION
    return min(metrics + spans, made.gigabytes_max * made.regions)


def price_alerts(made: Deployment) -> float:
    rules = price("log rule", made.log_rules) + price("metric series", made.metric_series)
    return rules + price("availability test", made.test_runs)


# What the same month cost before telemetry was sampled, leases scaled and namespaces were Standard
# (by queue, by HTTP), as it was worked out then. It left out what has a 0.
BEFORE: Mapping[str, tuple[float, float]] = {
    "Service Bus": (1_354, 1_354),
    "instances, ready and executing": (444, 625),
    "journal": (175, 247),
    "logs, traces and metrics": (730, 1_350),
    "alerts and availability tests": (25, 25),
    "traffic between regions": (0, 0),
}


def render_before() -> str:
    """The worked month before and after."""
    after = [bill(size, read_deployment()) for size in SIZES[1:3]]
    joined = [
        {
            **one,
            "instances, ready and executing": one["instances that are always ready"]
            + one["executing"],
            "journal": sum(cost for name, cost in one.items() if name.startswith("journal")),
        }
        for one in after
    ]
    amounts = {
        n: [x for b, a in zip(BEFORE[n], joined, strict=True) for x in (b, a[n])] for n in BEFORE
    }
    amounts["**sum**"] = [sum(column) for column in zip(*amounts.values(), strict=True)]
    head = ("US dollars a month", "by queue, before", "after", "by HTTP, before", "after")
    return table(head, [(name, *map(dollars, row)) for name, row in amounts.items()])


def dollars(amount: float) -> str:
    return f"{amount:,.0f}"


def render_month() -> str:
    """The month's bill of each size, by row."""
    bills = [bill(size, read_deployment()) for size in SIZES]
    rows = [(name, *(dollars(one[name]) for one in bills)) for name in bills[0]]
    rows.append(("**sum**", *(f"**{dollars(sum(one.values()))}**" for one in bills)))
    return table(("US dollars a month", *(size.name for size in SIZES)), rows)


def render_switches() -> str:
    """What each switch adds to the worked month, by queue."""
    made, full = read_deployment(), read_deployment("everything")
    before = sum(bill(WORKED, made).values())

    def adds(changed: Deployment = made, size: Size = WORKED, more: float = 0.0) -> str:
        return f"{sum(bill(size, changed).values()) - before + more:+,.0f}"

    def without(name: str) -> Deployment:
        return replace(made, warm={n: count for n, count in made.warm.items() if n != name})

    endpoints = list(of_type("everything", "Microsoft.Network/privateEndpoints"))
    # Each region has one to the namespace of each further region.
    each = len(endpoints) // full.regions - (full.regions - made.regions)
    zones = len(list(of_type("everything", "Microsoft.Network/privateDnsZones"))) // full.regions
    private = price("endpoint", each * made.regions) + price("zone", zones * made.regions)
    premium = replace(WORKED, sku="Premium", units=1)
    always = price("warm at work", SECONDS * made.memory * made.regions)
    second = replace(made, warm={name: 2 * count for name, count in made.warm.items()})
    silent = replace(made, log_rules=0, metric_series=0, test_runs=0)
    capped = made.gigabytes_max * made.regions - measure_telemetry(WORKED, made)
    narrow = replace(made, containers=[2000, made.containers[-1]])
    rows = [
        ("`serviceBusSku` = `Premium`", adds(size=premium), "one messaging unit in each region"),
        (
            "`privateNetwork`, which needs Premium",
            adds(size=premium, more=private),
            f"{each} private endpoints and {zones} DNS zones in each region, and their traffic",
        ),
        (
            "`partitionFailover` = `false`",
            adds(replace(made, is_critical=False)),
            "the tier that it belongs to (estimate)",
        ),
        (
            "`producers`",
            f"{price_throughput(made, made.containers[0] / 10):+,.0f}",
            "a container as large as the journal's; its traffic comes on top",
        ),
        (
            "`zoneRedundant`",
            adds(second),
            "a second instance of each that is always ready; throughput may cost more, too",
        ),
        (
            "`frontDoor`",
            adds(more=price("front door", 1) + always),
            "its base price, and an instance that answers its questions; traffic on top",
        ),
        ("`emails` = `none`", adds(silent), "no alert, no availability test"),
        ("`warmHttp` = 0", adds(without("http")), "for senders that publish by themselves"),
        (
            "`journalThroughputMax` = 2000",
            adds(narrow),
            f"a floor of 200 RU/s, in place of {made.containers[0] // 10}",
        ),
        (
            "`warmFeeds` = 1",
            f"{price('warm', SECONDS * made.memory * made.regions):+,.0f}",
            "for each feed",
        ),
        (
            "`spanRatio` = 1",
            adds(more=price("logs", capped)),
            "as much as the daily cap of the workspaces lets through",
        ),
        ("`keepRecord`", "by the GB", "what is done to namespaces and journal"),
        ("`backupTier` = `Continuous30Days`", "by the GB", "seven days come with the account"),
        ("`durableBackend` = `none`", adds(without("durable")), "for an app without sagas"),
        ("`durableBackend` = `scheduler`", "by the action", "in place of storage transactions"),
    ]
    return table(("switch", "US dollars a month", "for what"), rows)


def render_prices() -> str:
    """The list prices, each in one place."""
    return table(
        ("what", "US dollars"),
        [(what, f"{amount:f}".rstrip("0").rstrip(".")) for amount, what in PRICES.values()],
    )

"""Every app setting, its meaning and its default: the only file that interprets them.

Connections follow the Functions convention: `NAME` holds a connection string, or `NAME__<endpoint>`
an address reached with a managed identity (`NAME__clientId`, `NAME__credential`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from shared.domain.access import Authentication
from shared.domain.message import BODY_BYTES_MAX_BY_SKU

# By these the host overrules its host.json, and what that says.
SESSIONS_SETTING = "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentSessions"
CALLS_SETTING = "AzureFunctionsJobHost__extensions__serviceBus__maxConcurrentCallsPerSession"
IN_HAND = {SESSIONS_SETTING: "8", CALLS_SETTING: "8"}
# "Service Bus quotas", in each tier: concurrent receive requests on a queue. What is beyond it is
# refused, so that instances would refuse each other.
RECEIVES_MAX = 5_000
SERVICE_BUS_PREFIX = "ServiceBus_"
# By this the platform says that App Service authentication is on; it is no app setting.
AUTH_ENABLED = "WEBSITE_AUTH_ENABLED"
# The connection of the host's own storage account, where an identity reaches it; it is the host's
# setting, and no account is looked at without it.
STORAGE_NAME = "AzureWebJobsStorage"
# By these a host has more workers than one at a time.
WORKERS_SETTING = "FUNCTIONS_WORKER_PROCESS_COUNT"
MORE_WORKERS_SETTING = "FUNCTIONS_WORKER_DYNAMIC_CONCURRENCY_ENABLED"
# A region's share of the sessions.
WEIGHT = re.compile(r"1000|[0-9]{1,3}")


class InvalidSettings(ValueError):
    """A setting is missing, or its value cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One app setting. Without a default it is required."""

    name: str
    meaning: str
    default: str | None = None


SETTINGS = (
    Setting("LOCKSTEP_REGION", "the region this app runs in"),
    Setting("LOCKSTEP_REGIONS", "all regions, comma separated, the preferred one first"),
    Setting(
        "LOCKSTEP_REGIONS_REPLACED",
        "the regions that `LOCKSTEP_REGIONS` takes the place of, while one is added or removed",
        "",
    ),
    Setting("LOCKSTEP_QUEUE", "the session queue that messages come in by", "lockstep"),
    Setting(
        "LOCKSTEP_INPUT_TOPICS",
        "the topics that feed that queue, comma separated: each has a subscription of the queue's"
        " name that forwards to it; empty: none",
        "",
    ),
    Setting(
        "LOCKSTEP_SERVICE_BUS_SKU",
        "the sku of the namespaces, which decides how large a body may be: Standard: 250,000 bytes;"
        " Premium: 1,000,000",
        "Standard",
    ),
    Setting("LOCKSTEP_OUTPUT_QUEUE", "the session queue that outputs go to", "lockstep-out"),
    Setting("LOCKSTEP_ERROR_QUEUE", "the session queue for faults", "lockstep-errors"),
    Setting(
        "LOCKSTEP_REPLY_QUEUES",
        "the queues and topics that senders may ask answers to, comma separated; empty: none",
        "",
    ),
    Setting("LOCKSTEP_DATABASE", "the Cosmos DB database", "lockstep"),
    Setting("LOCKSTEP_JOURNAL", "the container of the journals", "journal"),
    Setting("LOCKSTEP_LEASES", "the container of the change feed's leases", "leases"),
    Setting(
        "LOCKSTEP_LEDGERS",
        "the container of the ledgers of producers outside the apps, in the apps and in those"
        " producers; empty: the journals' own",
        "",
    ),
    Setting(
        "LOCKSTEP_SECONDARY_DELAY_SECONDS", "how much later the other regions see a copy", "15"
    ),
    Setting(
        "LOCKSTEP_GAP_WAIT_SECONDS",
        "how long a message waits for an earlier one before it is parked; others behind the same"
        " gap are then parked at once",
        "5",
    ),
    Setting(
        "LOCKSTEP_RECOVERY_LAG_SECONDS", "how long an outbox is left to its own dispatcher", "5"
    ),
    Setting(
        "LOCKSTEP_ACKNOWLEDGE_SECONDS",
        "how long an acknowledgement waits for the session's next entry to carry it; less than the"
        " recovery lag",
        "0.5",
    ),
    Setting(
        "LOCKSTEP_STANDSTILL_SECONDS",
        "how long a region may miss outputs, or a number be missing, before it is listed, and how"
        " much longer than its plan a saga may take before it is overdue",
        "300",
    ),
    Setting("LOCKSTEP_LEASE_SECONDS", "how long a claim outlives its owner", "30"),
    Setting(
        "LOCKSTEP_HANDLER_SECONDS",
        "how long one run of a handler may take before it is cut off; four of these and half a"
        " minute have to fit into the functionTimeout of host.json",
        "60",
    ),
    Setting("LOCKSTEP_WINDOW_DAYS", "how long un-numbered messages are remembered", "7"),
    Setting("LOCKSTEP_RETENTION_DAYS", "how old an entry is before it may be compacted", "7"),
    Setting(
        "LOCKSTEP_KEEP_INPUTS",
        "yes: entries keep the whole messages that handlers took, for an archive; no: they do not",
        "no",
    ),
    Setting(
        "LOCKSTEP_PREFERENCE",
        "first: one region leads; spread: each session has its own; spread:REGION=WEIGHT,...: a"
        " share of the sessions for each region, by weights from 0 to 1000, alike in all apps",
        "first",
    ),
    Setting(
        "LOCKSTEP_UNNUMBERED_ORDER",
        "any: messages without numbers in about the order of their arrival; arrival: exactly in it,"
        " with one call of a session at a time",
        "any",
    ),
    Setting(
        "LOCKSTEP_INSTANCES_MAX",
        "the most instances of the app in this region, as its plan has them: what they take of the"
        " queue at a time, all together, has to stay below its limit",
        "40",
    ),
    Setting("LOCKSTEP_COMPACT_SCHEDULE", "when compaction runs (NCRONTAB)", "0 */10 * * * *"),
    Setting("LOCKSTEP_SWEEP_SCHEDULE", "when the sweep runs (NCRONTAB)", "*/15 * * * * *"),
    Setting(
        "LOCKSTEP_COSMOS_LOCATIONS",
        "every region of the journal's account, comma separated, the nearest first; empty: any",
        "",
    ),
    Setting(
        "LOCKSTEP_JOURNAL_CALL_SECONDS",
        "how long one call to the journal's account may take; what has no answer then may have"
        " happened, and is read back",
        "10",
    ),
    Setting(
        "LOCKSTEP_NOTICE_URL",
        "where the handler of notices posts them; empty: each becomes a fault that names this"
        " setting",
        "",
    ),
    Setting(
        "LOCKSTEP_AUTHENTICATION",
        "what callers over HTTP show: keys: a function key; entra: a token of Entra ID, whose roles"
        " are their rights; both: both",
        "keys",
    ),
    Setting(
        "LOCKSTEP_LOG_MESSAGES",
        "yes: a line of the log for each delivery; no: only for those that a person has to look at",
        "no",
    ),
    Setting(
        "LOCKSTEP_DOCS_URL",
        "where the documentation is served as a site, as make docs builds it: the operations page"
        " links there; empty: it names the place in a checkout",
        "",
    ),
    Setting(
        "LOCKSTEP_TRACE_RATIO",
        "of the messages that are published without a trace, the part that gets one, from 0 to 1;"
        " what HTTP ingest takes has one wherever traces go",
        "0",
    ),
    Setting(
        "LOCKSTEP_SPAN_RATIO",
        "of the traces that the app begins, sagas among them, the part whose spans are sent, from 0"
        " to 1; a trace that a sender or caller marked as sampled is sent whole",
        "0.05",
    ),
    Setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "where traces and metrics go by OTLP over HTTP; empty: nowhere",
        "",
    ),
    Setting(
        "APPLICATIONINSIGHTS_CONNECTION_STRING",
        "the Application Insights component that takes traces and metrics; empty: none",
        "",
    ),
    Setting("Cosmos", "the connection of the journal's account"),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection string, or an endpoint and the identity to reach it with."""

    connection_string: str | None = field(default=None, repr=False)
    endpoint: str | None = None
    client_id: str | None = None

    @property
    def host(self) -> str:
        """The name of the service's host, however it is reached."""
        parts = (self.connection_string or "").split(";")
        named = (part.partition("=")[2] for part in parts if part.lower().startswith("endpoint="))
        address = self.endpoint or next(named, "")
        return urlsplit(address if "//" in address else f"//{address}").hostname or ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, checked."""

    region: str
    regions: tuple[str, ...]
    replaced_regions: tuple[str, ...]
    queue: str
    input_topics: tuple[str, ...]
    body_bytes_max: int
    output_queue: str
    error_queue: str
    reply_queues: frozenset[str]
    database: str
    journal: str
    leases: str
    ledgers: str
    secondary_delay_seconds: float
    gap_wait_seconds: float
    recovery_lag_seconds: float
    acknowledge_seconds: float
    standstill_seconds: float
    lease_seconds: float
    handler_seconds: float
    window_days: float
    retention_days: float
    keeps_inputs: bool
    affinity: bool
    weights: Mapping[str, float]
    cosmos_locations: tuple[str, ...]
    journal_call_seconds: float
    # Such an address may carry a key.
    notice_url: str = field(repr=False)
    authentication: Authentication
    platform_checks_tokens: bool
    has_one_worker: bool
    logs_messages: bool
    docs_url: str
    trace_ratio: float
    span_ratio: float
    otlp_endpoint: str
    insights: str = field(repr=False)
    service_bus: Mapping[str, Connection]
    cosmos: Connection
    storage: Connection | None

    @classmethod
    def read(cls, values: Mapping[str, str]) -> "Settings":
        """Check the values, usually `os.environ`; raises InvalidSettings."""
        regions = names(values, "LOCKSTEP_REGIONS")
        region = read_text(values, "LOCKSTEP_REGION")
        if region not in regions:
            raise InvalidSettings(f"LOCKSTEP_REGION {region!r} is not among {', '.join(regions)}")
        acknowledge = read_number(values, "LOCKSTEP_ACKNOWLEDGE_SECONDS")
        lag = read_number(values, "LOCKSTEP_RECOVERY_LAG_SECONDS")
        if acknowledge >= lag > 0:
            # The recovery would send again what only waits to be acknowledged.
            raise InvalidSettings(
                f"LOCKSTEP_ACKNOWLEDGE_SECONDS {acknowledge:g} must be less than"
                f" LOCKSTEP_RECOVERY_LAG_SECONDS {lag:g}"
            )
        queue, error_queue = (
            read_text(values, name) for name in ("LOCKSTEP_QUEUE", "LOCKSTEP_ERROR_QUEUE")
        )
        reply_queues = frozenset(names(values, "LOCKSTEP_REPLY_QUEUES"))
        if own := sorted(reply_queues & {queue, error_queue}):
            # Whoever may only ask would make the app say there what nobody else may.
            raise InvalidSettings(f"LOCKSTEP_REPLY_QUEUES names the app's own queue {own[0]!r}")
        window, retention = memory_days(values)
        affinity, weights = read_preference(values, regions)
        require_one_call(values)
        require_receives(values)
        return cls(
            region=region,
            regions=regions,
            replaced_regions=names(values, "LOCKSTEP_REGIONS_REPLACED"),
            queue=queue,
            input_topics=names(values, "LOCKSTEP_INPUT_TOPICS"),
            body_bytes_max=read_body_limit(values),
            output_queue=read_text(values, "LOCKSTEP_OUTPUT_QUEUE"),
            error_queue=error_queue,
            reply_queues=reply_queues,
            database=read_text(values, "LOCKSTEP_DATABASE"),
            journal=read_text(values, "LOCKSTEP_JOURNAL"),
            leases=read_text(values, "LOCKSTEP_LEASES"),
            ledgers=read_ledgers(values),
            secondary_delay_seconds=read_number(values, "LOCKSTEP_SECONDARY_DELAY_SECONDS"),
            gap_wait_seconds=read_number(values, "LOCKSTEP_GAP_WAIT_SECONDS"),
            recovery_lag_seconds=lag,
            acknowledge_seconds=acknowledge,
            standstill_seconds=read_number(values, "LOCKSTEP_STANDSTILL_SECONDS"),
            lease_seconds=read_number(values, "LOCKSTEP_LEASE_SECONDS", least=1),
            handler_seconds=read_number(values, "LOCKSTEP_HANDLER_SECONDS", least=1),
            window_days=window,
            retention_days=retention,
            keeps_inputs=choice(values, "LOCKSTEP_KEEP_INPUTS", "no", "yes") == "yes",
            affinity=affinity,
            weights=weights,
            cosmos_locations=names(values, "LOCKSTEP_COSMOS_LOCATIONS"),
            journal_call_seconds=read_number(
                values, "LOCKSTEP_JOURNAL_CALL_SECONDS", least=1, most=60
            ),
            notice_url=url(values, "LOCKSTEP_NOTICE_URL"),
            authentication=Authentication(
                choice(values, "LOCKSTEP_AUTHENTICATION", *Authentication)
            ),
            platform_checks_tokens=values.get(AUTH_ENABLED, "").lower() == "true",
            has_one_worker=values.get(WORKERS_SETTING, "1") == "1"
            and not values.get(MORE_WORKERS_SETTING),
            logs_messages=choice(values, "LOCKSTEP_LOG_MESSAGES", "no", "yes") == "yes",
            docs_url=url(values, "LOCKSTEP_DOCS_URL"),
            trace_ratio=read_number(values, "LOCKSTEP_TRACE_RATIO", most=1),
            span_ratio=read_number(values, "LOCKSTEP_SPAN_RATIO", most=1),
            otlp_endpoint=url(values, "OTEL_EXPORTER_OTLP_ENDPOINT"),
            insights=read_text(values, "APPLICATIONINSIGHTS_CONNECTION_STRING"),
            service_bus={
                r: connection(values, SERVICE_BUS_PREFIX + r, "fullyQualifiedNamespace")
                for r in regions
            },
            cosmos=connection(values, "Cosmos", "accountEndpoint"),
            storage=connection(values, STORAGE_NAME, "blobServiceUri")
            if values.get(f"{STORAGE_NAME}__blobServiceUri")
            else None,
        )

    @property
    def kept_for(self) -> dict[str, str]:
        """The settings that no other application has that might come to its journal by mistake."""
        hosts = {f"{SERVICE_BUS_PREFIX}{r}": one.host for r, one in self.service_bus.items()}
        return {"LOCKSTEP_QUEUE": self.queue} | hosts

    def require_checked_tokens(self) -> None:
        """Raise InvalidSettings where an app would believe tokens that nobody checks.

        The claims of a token come in a header that App Service authentication takes from clients.
        Where that is off, a client could write any claims, so the app does not start.
        """
        if self.authentication is not Authentication.KEYS and not self.platform_checks_tokens:
            raise InvalidSettings(
                f"LOCKSTEP_AUTHENTICATION {self.authentication} needs App Service authentication,"
                f" which is off here: the platform does not say {AUTH_ENABLED}"
            )


def memory_days(values: Mapping[str, str]) -> tuple[float, float]:
    """Return how long messages are remembered and entries kept; raises InvalidSettings."""
    window = read_number(values, "LOCKSTEP_WINDOW_DAYS")
    retention = read_number(values, "LOCKSTEP_RETENTION_DAYS")
    if retention < window:
        # A command's answer is read from its entry for as long as the command is remembered.
        raise InvalidSettings(
            f"LOCKSTEP_RETENTION_DAYS {retention:g} must not be less than"
            f" LOCKSTEP_WINDOW_DAYS {window:g}"
        )
    return window, retention


def read_preference(
    values: Mapping[str, str], regions: Sequence[str]
) -> tuple[bool, Mapping[str, float]]:
    """Return whether sessions are spread, and by which weights; raises InvalidSettings."""
    name = "LOCKSTEP_PREFERENCE"
    kind, colon, listed = read_text(values, name).partition(":")
    if not colon:
        return choice(values, name, "first", "spread") == "spread", {}
    weights: dict[str, float] = {}
    for part in listed.split(","):
        region, _, weight = (piece.strip() for piece in part.partition("="))
        if region not in regions or region in weights or not WEIGHT.fullmatch(weight):
            raise InvalidSettings(f"{name}: {part.strip()!r} gives no region of its own a weight")
        weights[region] = float(weight)
    if kind != "spread" or set(weights) != set(regions) or not any(weights.values()):
        raise InvalidSettings(
            f"{name} must be first, spread, or spread: with a weight from 0 to 1000 for each of"
            f" {', '.join(regions)}, one of them above 0, as in spread:{regions[0]}=1"
        )
    return True, weights


def read_ledgers(values: Mapping[str, str]) -> str:
    """The container of external ledgers, or nothing; raises InvalidSettings."""
    ledgers = read_text(values, "LOCKSTEP_LEDGERS")
    for name in ("LOCKSTEP_JOURNAL", "LOCKSTEP_LEASES"):
        if ledgers == read_text(values, name):
            # Who may write there could write everything.
            raise InvalidSettings(f"LOCKSTEP_LEDGERS and {name} are both {ledgers!r}")
    return ledgers


def read_body_limit(values: Mapping[str, str]) -> int:
    """The most bytes that the body of a message may have; raises InvalidSettings."""
    return BODY_BYTES_MAX_BY_SKU[choice(values, "LOCKSTEP_SERVICE_BUS_SKU", *BODY_BYTES_MAX_BY_SKU)]


def require_one_call(values: Mapping[str, str]) -> None:
    """Refuse the order of arrival with a host that may make several calls of a session at once.

    Whatever host.json says, an app setting overrules it. Raises InvalidSettings.
    """
    order = choice(values, "LOCKSTEP_UNNUMBERED_ORDER", "any", "arrival")
    if order == "arrival" and values.get(CALLS_SETTING) != "1":
        raise InvalidSettings(
            "LOCKSTEP_UNNUMBERED_ORDER arrival needs one call of a session at a time:"
            f" set {CALLS_SETTING} to 1"
        )


def require_receives(values: Mapping[str, str]) -> None:
    """Refuse more receives, over all instances, than a queue takes at a time.

    Of an own host.json nothing is known here: infra/hooks.py looks at it before a deployment.
    Raises InvalidSettings.
    """
    instances = read_number(values, "LOCKSTEP_INSTANCES_MAX", least=1)
    sessions, calls = (read_number({**IN_HAND, **values}, name, least=1) for name in IN_HAND)
    if instances * sessions * calls > RECEIVES_MAX:
        raise InvalidSettings(
            f"LOCKSTEP_INSTANCES_MAX {instances:g} with {sessions:g} sessions and {calls:g} calls"
            f" of each at a time are more than the {RECEIVES_MAX:,} receives that a queue takes:"
            f" lower it, {SESSIONS_SETTING} or {CALLS_SETTING}"
        )


def connection(values: Mapping[str, str], name: str, endpoint: str) -> Connection:
    """A connection in either form; raises InvalidSettings where neither is there."""
    if values.get(name):
        return Connection(connection_string=values[name])
    address = values.get(f"{name}__{endpoint}")
    if not address:
        raise InvalidSettings(f"neither {name} nor {name}__{endpoint} is set")
    return Connection(endpoint=address, client_id=values.get(f"{name}__clientId"))


def read_text(values: Mapping[str, str], name: str) -> str:
    """A setting's value, or its default; raises InvalidSettings where there is neither."""
    default = next((setting.default for setting in SETTINGS if setting.name == name), None)
    value = values.get(name) or default
    if value is None:
        raise InvalidSettings(f"{name} is not set")
    return value


def names(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    """A comma separated list; what is named twice counts where it comes first."""
    parts = (part.strip() for part in read_text(values, name).split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def url(values: Mapping[str, str], name: str) -> str:
    """An HTTP address, or nothing; raises InvalidSettings."""
    value = read_text(values, name)
    if value and not value.startswith(("http://", "https://")):
        raise InvalidSettings(f"{name} must begin with http:// or https://")
    return value


def choice(values: Mapping[str, str], name: str, *known: str) -> str:
    """One of a few words; raises InvalidSettings."""
    value = read_text(values, name)
    if value not in known:
        raise InvalidSettings(f"{name} must be {' or '.join(map(str, known))}, not {value!r}")
    return value


def read_number(
    values: Mapping[str, str], name: str, *, least: float = 0, most: float = float("inf")
) -> float:
    """A finite number within these bounds; raises InvalidSettings."""
    value = read_text(values, name)
    try:
        found = float(value)
    except ValueError:
        raise InvalidSettings(f"{name} is not a number: {value!r}") from None
    if found > most:
        raise InvalidSettings(f"{name} must be at most {most:g}, not {value!r}")
    if not least <= found < float("inf"):
        raise InvalidSettings(f"{name} must be a finite number from {least:g} on, not {value!r}")
    return found

"""Which headers of the service's own a request may have; all others are refused by name."""

from collections.abc import Iterable

from local.cosmos.answers import unsupported

PREFIX = "x-ms-"
HONOURED = frozenset(
    {
        "x-ms-activity-id",
        "x-ms-consistency-level",
        "x-ms-continuation",
        "x-ms-cosmos-batch-atomic",
        "x-ms-cosmos-batch-continue-on-error",
        "x-ms-cosmos-intended-collection-rid",
        "x-ms-cosmos-is-batch-request",
        "x-ms-cosmos-is-query-plan-request",
        "x-ms-cosmos-offer-autopilot-settings",
        "x-ms-date",
        "x-ms-documentdb-is-upsert",
        "x-ms-documentdb-isquery",
        "x-ms-documentdb-partitionkey",
        "x-ms-documentdb-partitionkeyrangeid",
        "x-ms-documentdb-query-enablecrosspartition",
        "x-ms-end-epk",
        "x-ms-max-item-count",
        "x-ms-offer-throughput",
        "x-ms-session-token",
        "x-ms-start-epk",
    }
)
# They say who asks and what the client can do, or allow what is never done here.
IGNORED = frozenset(
    {
        "x-ms-client-id",
        "x-ms-client-request-id",
        "x-ms-cosmos-allow-tentative-writes",
        "x-ms-cosmos-changefeed-wire-format-version",
        "x-ms-cosmos-correlated-activityid",
        "x-ms-cosmos-priority-level",
        "x-ms-cosmos-query-version",
        "x-ms-cosmos-sdk-supportedcapabilities",
        "x-ms-cosmos-supported-query-features",
        "x-ms-cosmos-throughput-bucket",
        "x-ms-documentdb-query-enable-scan",
        "x-ms-documentdb-query-iscontinuationexpected",
        "x-ms-documentdb-query-parallelizecrosspartitionquery",
        "x-ms-documentdb-responsecontinuationtokenlimitinkb",
        "x-ms-read-key-type",
        "x-ms-thinclient-proxy-operation-type",
        "x-ms-thinclient-proxy-resource-type",
        "x-ms-useragent",
        "x-ms-version",
    }
)


def check_names(headers: Iterable[str]) -> None:
    """Raise a 400 Refusal that names a header which is not honoured."""
    for header in headers:
        name = header.lower()
        if name.startswith(PREFIX) and name not in HONOURED and name not in IGNORED:
            raise unsupported(f"the header {name}")

"""What a Cosmos DB trigger binding says; nothing of the client is imported before it is used."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from local.functions_host.function import Binding

if TYPE_CHECKING:
    from local.functions_host.changefeed.feed import Start
    from local.functions_host.changefeed.processor import FeedOptions

HONOURED = (
    "connection",
    "databaseName",
    "containerName",
    "leaseConnection",
    "leaseDatabaseName",
    "leaseContainerName",
    "leaseContainerPrefix",
    "createLeaseContainerIfNotExists",
    "feedPollDelay",
    "leaseAcquireInterval",
    "leaseRenewInterval",
    "leaseExpirationInterval",
    "maxItemsPerInvocation",
    "startFromBeginning",
    "startFromTime",
    "preferredLocations",
    "changeFeedMode",
)


def feed_options(binding: Binding) -> "FeedOptions":
    """Read the binding's numbers; the defaults are those of the extension."""
    from local.functions_host.changefeed.processor import FeedOptions

    return FeedOptions(
        binding.number("feedPollDelay", 5000) / 1000,
        binding.number("leaseAcquireInterval", 13000) / 1000,
        binding.number("leaseRenewInterval", 17000) / 1000,
        binding.number("leaseExpirationInterval", 60000) / 1000,
        binding.number("maxItemsPerInvocation", 100),
        start_of(binding),
    )


def start_of(binding: Binding) -> "Start":
    """Where a feed without a lease begins; both ways of saying it at once are Refused."""
    is_from_beginning = binding.flag("startFromBeginning", False)
    if "startFromTime" not in binding.properties:
        return "Beginning" if is_from_beginning else "Now"
    if is_from_beginning:
        raise binding.refused("startFromBeginning and startFromTime exclude each other")
    try:
        moment = datetime.fromisoformat(binding.text("startFromTime"))
    except ValueError as error:
        raise binding.refused(f"startFromTime: {error}") from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def locations_of(binding: Binding) -> list[str]:
    """The regions to read from, nearest first; none leaves it to the account."""
    names = binding.text("preferredLocations", "").split(",")
    return [name.strip() for name in names if name.strip()]


def feed_of(binding: Binding) -> tuple[str, str]:
    """The database and the container whose changes are followed."""
    return binding.text("databaseName"), binding.text("containerName")


def leases_of(binding: Binding) -> tuple[str, str]:
    """The database and the container in which leases are kept."""
    database = binding.text("leaseDatabaseName", binding.text("databaseName"))
    return database, binding.text("leaseContainerName", "leases")


def check(binding: Binding) -> None:
    """Refuse what is not honoured, and every mode but the latest version."""
    binding.only(*HONOURED)
    mode = binding.text("changeFeedMode", "LatestVersion")
    if mode.replace("_", "").lower() != "latestversion":
        raise binding.refused(f"changeFeedMode {mode} is not honoured, only LatestVersion")

"""The journal's change feed, as every function that follows it is triggered."""

from typing import Any

# A killed host keeps its part of the feed until its lease expires. By default that is a minute, in
# which nothing of its region is recovered (docs/adr/operation.md). Milliseconds.
JOURNAL_FEED: dict[str, Any] = {
    "arg_name": "documents",
    "connection": "Cosmos",
    "database_name": "%LOCKSTEP_DATABASE%",
    "container_name": "%LOCKSTEP_JOURNAL%",
    "lease_container_name": "%LOCKSTEP_LEASES%",
    "lease_expiration_interval": 15_000,
    "lease_renew_interval": 5_000,
    "lease_acquire_interval": 3_000,
    # Without it the feed is read in the account's write region, wherever that is.
    "preferred_locations": "%LOCKSTEP_COSMOS_LOCATIONS%",
    # Only for a feed that has no lease yet: what was written before a region's first start, or
    # before it was added, is seen too, sagas that have begun among them.
    "start_from_beginning": True,
}
# That of the ledgers of producers outside, where these have a container of their own.
LEDGERS_FEED = JOURNAL_FEED | {"container_name": "%LOCKSTEP_LEDGERS%"}

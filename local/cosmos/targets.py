"""What faults can hit in an account: its operations, by container."""

from collections.abc import Iterable

from local.cosmos.requests import OPERATIONS, READING
from local.faults import Action
from local.targets import Target

COMPONENT = "cosmos"
ITEM_OPERATIONS = {
    *OPERATIONS.values(),
    *("create", "upsert", "batch", "query", "query-plan", "feed"),
}
ACCOUNT_OPERATION = "account"
HONOURED = frozenset(
    {Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER, Action.DROP_CONNECTION}
)
OF_READS = HONOURED | {Action.STALE_READ}
OF_ACCOUNT = HONOURED | {Action.CLOCK_OFFSET}


def targets(containers: Iterable[str], regions: Iterable[str] = ()) -> list[Target]:
    """The account with all that is in it, and each container; all of them are in all regions."""
    items = {name: OF_READS if name in READING else HONOURED for name in ITEM_OPERATIONS}
    places = frozenset(regions)
    whole = Target(COMPONENT, {ACCOUNT_OPERATION: OF_ACCOUNT, **items}, places)
    return [whole, *(Target(f"{COMPONENT}.{name}", items, places) for name in containers)]

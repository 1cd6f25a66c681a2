"""A few flights to query, with values of many types, in a container of either kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from azure.cosmos import ContainerProxy

from wire.cosmos_account import RunningAccount, running_account

FLIGHTS: list[dict[str, Any]] = [
    {
        "id": "1",
        "tail": "N1",
        "from": "JFK",
        "delay": 5,
        "crew": ["Ann", "Bo"],
        "plan": {"fl": 330},
    },
    {"id": "2", "tail": "N1", "from": "LGA", "delay": -3, "crew": [], "plan": {"fl": 350}},
    {"id": "3", "tail": "N1", "from": "JFK", "delay": 5, "cancelled": True, "odd name": "x"},
    {"id": "4", "tail": "N2", "from": "EWR", "delay": None, "crew": ["Cy"], "plan": {"fl": "high"}},
    {"id": "5", "tail": "N2", "from": "JFK", "delay": 2.5, "cancelled": False},
]


@contextmanager
def account_with_flights() -> Iterator[RunningAccount]:
    """An account whose containers `flights` and `divided` both hold the FLIGHTS."""
    with running_account() as running:
        for flight in FLIGHTS:
            running.flights.create_item(dict(flight))
            running.divided.create_item(dict(flight))
        yield running


def run(container: ContainerProxy, text: str, **rest: Any) -> list[Any]:
    """All results of a cross-partition query."""
    rest.setdefault("enable_cross_partition_query", True)
    return list(container.query_items(text, **rest))

"""The operations of docs/deploy.md, in their order, against what Azure is published to refuse.

The commands are read from the page, and what provisioning asks for from the templates. The rules:

- A resource does not change the location that it was created in (`InvalidResourceLocation`,
  learn.microsoft.com/azure/azure-resource-manager/troubleshooting).
- The locations of an account of Cosmos DB are changed, or anything else of it, but not both at once
  (learn.microsoft.com/azure/cosmos-db/nosql/manage-with-bicep).
- Whether a location of an account has zones is said when it is added, and not changed.
"""

import json
import re
from dataclasses import dataclass, replace

import pytest

from tests.infra.parity import ROOT
from tests.infra.snapshots import Resources, only, read_snapshot

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


class Refused(Exception):
    """Azure does not do this."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of Cosmos DB: where its record is, its locations in order, and all else of it."""

    home: str
    zones: dict[str, bool]
    rest: str


def read_account(resources: Resources) -> Account:
    """The account that a snapshot asks for."""
    body = only(resources, "Microsoft.DocumentDB/databaseAccounts")
    properties = dict(body["properties"])
    locations = sorted(properties.pop("locations"), key=lambda one: one["failoverPriority"])
    zones = {one["locationName"]: one["isZoneRedundant"] for one in locations}
    return Account(body["location"], zones, json.dumps(properties))


def update(before: Account, asked: Account) -> Account:
    if asked.home != before.home:
        raise Refused(f"the account is in {before.home} and cannot be created in {asked.home}")
    if asked.zones.keys() != before.zones.keys() and asked.rest != before.rest:
        raise Refused("locations are changed together with other properties")
    if any(before.zones.get(name, has) != has for name, has in asked.zones.items()):
        raise Refused("a location has zones, or not, for good")
    return asked


DEFAULT, EVERYTHING, OTHER = (
    read_account(read_snapshot(name)) for name in ("default", "everything", "other")
)


def find_commands(heading: str) -> dict[str, list[str]]:
    """The locations that each `az cosmosdb` command under a heading names, in their order."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    found = {}
    for command, words in re.findall(r"az cosmosdb ([a-z-]+)([^`]+)", section):
        numbers = re.findall(r"(\w+) failoverPriority=(\d)", words)
        numbers += re.findall(r"(\w+)=(\d)", words) if not numbers else []
        found[command] = [place for place, _ in sorted(numbers, key=lambda one: int(one[1]))]
    return found


def move(before: Account, order: list[str]) -> Account:
    """What `failover-priority-change` and `update --locations` do: locations, and nothing else."""
    return update(
        before, replace(before, zones={name: before.zones.get(name, False) for name in order})
    )


def test_the_primary_is_changed_by_the_commands_of_the_page() -> None:
    (order,) = find_commands("Changing the primary").values()
    before = DEFAULT

    moved = move(before, order)

    assert moved.zones.keys() == before.zones.keys()
    assert list(moved.zones) != list(before.zones)
    # Provisioning with the list in that order asks for the same, and for no other home.
    assert moved.zones == OTHER.zones
    assert order == list(OTHER.zones)
    assert update(moved, replace(before, zones=OTHER.zones)) == moved


def test_a_third_region_is_added_by_the_commands_of_the_page() -> None:
    (order,) = find_commands("A third region").values()
    before, third = DEFAULT, EVERYTHING
    (place,) = set(third.zones) - set(before.zones)
    (named,) = re.findall(r"\{ name: '\w+', location: '(\w+)' \}", PAGE)[:1]

    # Together with another change it would be refused.
    wanted = replace(before, zones=dict.fromkeys(third.zones, False), rest="with another tier")
    with pytest.raises(Refused, match="together with other properties"):
        update(before, wanted)
    moved = move(before, order)
    assert (place, list(moved.zones)) == (named, list(third.zones))
    assert update(moved, wanted) == wanted


def test_a_journal_is_restored_by_the_commands_of_the_page() -> None:
    order = find_commands("Restoring the journal")["update"]
    restored = Account("eastus2", {"eastus2": False}, "as a restore leaves it")
    # Its resource group is in westeurope, and Azure made the account in eastus2.
    asked = OTHER

    with pytest.raises(Refused, match="together with other properties"):
        update(restored, asked)
    with pytest.raises(Refused, match="cannot be created in westeurope"):
        update(move(restored, order), replace(asked, home="westeurope"))
    assert update(move(restored, order), asked) == asked
    journal = only(read_snapshot("other"), "Microsoft.DocumentDB/databaseAccounts")
    assert journal["name"] == "restored"


def test_no_order_of_locations_moves_the_account_itself(resources: Resources) -> None:
    # The account is where its group is, or was restored to, whichever location takes the writes.
    assert read_account(resources).home == "eastus2"
    assert next(iter(OTHER.zones)) != "eastus2"


def test_zones_are_chosen_before_the_first_deployment() -> None:
    before = DEFAULT
    with pytest.raises(Refused, match="for good"):
        update(before, replace(before, zones=dict.fromkeys(before.zones, True)))
    assert {*EVERYTHING.zones.values()} == {True}
    (later,) = re.findall(r"switched on at any time(.*?)^Without", PAGE, re.MULTILINE | re.DOTALL)
    assert "`zoneRedundant`" not in later

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
from typing import Any

import pytest

from tests.infra.parity import ROOT, deployment

PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


class Refused(Exception):
    """Azure does not do this."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of Cosmos DB: where its record is, its locations in order, and all else of it."""

    home: str
    zones: dict[str, bool]
    rest: str


def read_template(**parameters: Any) -> Account:
    body = deployment(**parameters).module("journal").resource("account")
    properties = dict(body["properties"])
    locations = sorted(properties.pop("locations"), key=lambda one: one["failoverPriority"])
    zones = {one["locationName"]: one["isZoneRedundant"] for one in locations}
    return Account(body["location"], zones, json.dumps(properties, default=str))


def update(before: Account, asked: Account) -> Account:
    if asked.home != before.home:
        raise Refused(f"the account is in {before.home} and cannot be created in {asked.home}")
    if asked.zones.keys() != before.zones.keys() and asked.rest != before.rest:
        raise Refused("locations are changed together with other properties")
    if any(before.zones.get(name, has) != has for name, has in asked.zones.items()):
        raise Refused("a location has zones, or not, for good")
    return asked


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
    before = read_template()

    moved = move(before, order)

    assert moved.zones.keys() == before.zones.keys()
    assert list(moved.zones) != list(before.zones)
    asked = read_template(journalLocations=order, primary="west")
    assert update(moved, asked) == asked


def test_a_third_region_is_added_by_the_commands_of_the_page() -> None:
    (order,) = find_commands("A third region").values()
    before = read_template()
    (name, location) = re.findall(r"\{ name: '(\w+)', location: '(\w+)' \}", PAGE)[0]
    further = {"name": name, "location": location}
    asked: dict[str, Any] = {"regions": [*deployment().value("regions"), further]}

    # Together with another change it would be refused.
    with pytest.raises(Refused, match="together with other properties"):
        update(before, read_template(**asked, backupTier="Continuous30Days"))
    moved = move(before, order)
    assert list(moved.zones) == list(read_template(**asked).zones)
    wanted = read_template(**asked, backupTier="Continuous30Days")
    assert update(moved, wanted) == wanted


def test_a_journal_is_restored_by_the_commands_of_the_page() -> None:
    order = find_commands("Restoring the journal")["update"]
    restored = Account("eastus2", {"eastus2": False}, "as a restore leaves it")
    asked: dict[str, Any] = {
        "location": "westeurope",
        "journalAccount": "restored",
        "journalAccountLocation": "eastus2",
    }

    with pytest.raises(Refused, match="together with other properties"):
        update(restored, read_template(**asked))
    with pytest.raises(Refused, match="cannot be created in westeurope"):
        update(move(restored, order), read_template(location="westeurope"))
    wanted = read_template(**asked)
    assert update(move(restored, order), wanted) == wanted
    journal = deployment(**asked).module("journal")
    assert journal.resource("account")["name"] == "restored"


def test_no_order_of_locations_moves_the_account_itself() -> None:
    homes = {
        read_template(journalLocations=order).home
        for order in (["eastus2", "westus3", "centralus"], ["westus3", "centralus", "eastus2"])
    }

    assert homes == {deployment().value("location")}


def test_zones_are_chosen_before_the_first_deployment() -> None:
    with pytest.raises(Refused, match="for good"):
        update(read_template(), read_template(zoneRedundant=True))
    (later,) = re.findall(r"switched on at any time(.*?)^Without", PAGE, re.MULTILINE | re.DOTALL)
    assert "`zoneRedundant`" not in later

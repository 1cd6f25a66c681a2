"""Who may do what: the roles listed here, on these resources, and no key opens anything."""

from typing import Any

import pytest

from tests.infra.evaluation import Template, Unknown
from tests.infra.parity import (
    EVERYTHING,
    access_of,
    app_settings,
    deployment,
    grant,
    grants,
    region_of,
)


@pytest.mark.parametrize(("region", "peer"), [("east", "west"), ("west", "east")])
def test_an_identity_holds_these_roles_and_no_other(region: str, peer: str) -> None:
    main = deployment()
    own, other = region_of(region, main), region_of(peer, main)
    principal = f"<{own.resource('identity')['name']}.properties.principalId>"
    bus, peer_bus = str(own.resource("namespace")["name"]), str(other.resource("namespace")["name"])
    storage, insights = str(own.resource("storage")["name"]), str(own.resource("insights")["name"])
    journal = str(main.module("journal").resource("account")["name"])

    assert grants(access_of(region, main)) == {
        (principal, "Azure Service Bus Data Receiver", bus),
        (principal, "Azure Service Bus Data Sender", bus),
        (principal, "Azure Service Bus Data Sender", peer_bus),
        (principal, "Storage Blob Data Owner", storage),
        (principal, "Storage Queue Data Contributor", storage),
        (principal, "Storage Table Data Contributor", storage),
        (principal, "Monitoring Metrics Publisher", insights),
    }
    on_journal = grants(main.module("journalAccess"))
    assert {grant for grant in on_journal if grant[0] == principal} == {
        (principal, "Cosmos DB Built-in Data Contributor", journal)
    }


def test_people_may_look_and_change_nothing_but_the_error_queues() -> None:
    main = deployment(**EVERYTHING)
    group = str(EVERYTHING["readers"])
    given = grants(main.module("people")) | grants(main.module("journalAccess"))

    assert {(role, on) for who, role, on in given if who == group} == {
        ("Monitoring Reader", "None"),
        ("Azure Service Bus Data Receiver", "lockstep-errors"),
        ("Cosmos DB Built-in Data Reader", str(main.module("journal").value("accountName"))),
    }


PRODUCER = "22222222-2222-2222-2222-222222222222"


def rights_of_a_producer(access: Template) -> set[tuple[str, str]]:
    """Each role of a producer outside, and how far it reaches: Cosmos DB has it as a path."""
    return {
        (role, str(found.body["properties"].get("scope", on)))
        for found in access.resources()
        if "oleAssignments" in found.type
        for who, role, on in [grant(found)]
        if who == PRODUCER
    }


def test_a_producer_outside_keeps_ledgers_and_sends_to_the_input_queues_and_no_more() -> None:
    main = deployment(producers=[PRODUCER])
    account = main.module("journal").resource("account")["name"]

    assert rights_of_a_producer(main.module("journalAccess")) == {
        ("Cosmos DB Built-in Data Contributor", f"<{account}.id>/dbs/lockstep/colls/ledgers")
    }
    for name, access in zip(("east", "west"), main.modules("producersAccess"), strict=True):
        region = region_of(name, main)
        assert access.value("namespaceName") == region.resource("namespace")["name"]
        assert rights_of_a_producer(access) == {("Azure Service Bus Data Sender", "lockstep")}
        assert app_settings(region)["LOCKSTEP_LEDGERS"] == "ledgers"


def test_without_readers_and_producers_outside_the_apps_alone_have_roles() -> None:
    main = deployment()

    assert main.modules("people") == main.modules("producersAccess") == []
    roles = [role for _, role, _ in grants(main.module("journalAccess"))]
    assert roles == ["Cosmos DB Built-in Data Contributor"] * 2
    assert app_settings(region_of("east", main))["LOCKSTEP_LEDGERS"] == ""


def test_scaling_by_what_waits_takes_the_owners_role_on_the_own_namespace_only() -> None:
    few, more = (
        grants(access_of("east", deployment(scaleByBacklog=switch))) for switch in (False, True)
    )

    (gone,), (new,) = few - more, more - few
    assert (gone[1], new[1]) == ("Azure Service Bus Data Receiver", "Azure Service Bus Data Owner")
    assert gone[2] == new[2]


def test_azure_is_told_that_each_principal_is_new_and_no_person_and_no_two_share_a_name() -> None:
    main = deployment()
    bodies = [
        found.body
        for region in ("east", "west")
        for found in access_of(region, main).resources()
        if "oleAssignments" in found.type
    ]

    assert len({str(body["name"]) for body in bodies}) == len(bodies) == 14
    types = {body["properties"]["principalType"] for body in bodies}
    assert types == {"ServicePrincipal"}


@pytest.mark.parametrize("region", ["east", "west"])
def test_no_key_opens_anything_and_nothing_is_below_tls_1_2(region: str) -> None:
    wanted: dict[str, dict[str, Any]] = {
        "namespace": {"disableLocalAuth": True, "minimumTlsVersion": "1.2"},
        "storage": {
            "allowSharedKeyAccess": False,
            "allowBlobPublicAccess": False,
            "minimumTlsVersion": "TLS1_2",
            "supportsHttpsTrafficOnly": True,
        },
        "insights": {"DisableLocalAuth": True},
        "app": {"httpsOnly": True},
    }
    for resource, properties in wanted.items():
        found = region_of(region).resource(resource)["properties"]
        assert found | properties == found, resource


def test_neither_door_for_publishing_takes_a_password() -> None:
    policies = {
        found.body["name"]: found.body["properties"]
        for found in region_of("east").resources()
        if found.type == "Microsoft.Web/sites/basicPublishingCredentialsPolicies"
    }

    assert policies == {"scm": {"allow": False}, "ftp": {"allow": False}}


def test_the_app_runs_as_its_identity_and_fetches_its_package_with_it() -> None:
    template = region_of("east")
    app = template.resource("app")
    identity = f"{template.resource('identity')['name']}.id"
    storage = app["properties"]["functionAppConfig"]["deployment"]["storage"]

    assert app["identity"]["userAssignedIdentities"] == {str(Unknown(identity)): {}}
    assert storage["authentication"] == {
        "type": "UserAssignedIdentity",
        "userAssignedIdentityResourceId": Unknown(identity),
    }
    assert str(storage["value"]).endswith(str(template.resource("packages")["name"]))

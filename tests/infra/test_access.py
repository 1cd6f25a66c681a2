"""Who may do what: the roles listed here, on these resources, and no key opens anything."""

import pytest

from tests.infra.evaluation import Template, Unknown
from tests.infra.parity import (
    EVERYTHING,
    access_of,
    app_settings,
    changed,
    deployment,
    grant,
    grants,
    region_of,
    section,
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


def test_without_a_group_of_readers_no_person_has_a_role() -> None:
    main = deployment()

    assert main.modules("people") == []
    assert {role for _, role, _ in grants(main.module("journalAccess"))} == {
        "Cosmos DB Built-in Data Contributor"
    }


PRODUCER = "22222222-2222-2222-2222-222222222222"


def rights_of_a_producer(access: Template) -> set[tuple[str, str]]:
    """Each role of a producer outside, and how far it reaches: Cosmos DB has it as a path."""
    return {
        (role, str(section(found.body, "properties").get("scope", on)))
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


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("journalAccess", "'${account.id}${ledgersPath}'", "account.id"),
        ("producersAccess", "scope: queue", "scope: namespace"),
        ("producersAccess", "name: queueName", "name: 'lockstep-out'"),
    ],
)
def test_a_role_of_a_producer_that_reaches_further_is_seen(module: str, old: str, new: str) -> None:
    sound = deployment(producers=[PRODUCER]).modules(module)[0]

    assert rights_of_a_producer(changed(sound, old, new)) != rights_of_a_producer(sound)


def test_without_producers_outside_there_is_neither_role_nor_container() -> None:
    main = deployment()

    assert main.modules("producersAccess") == []
    assert len(grants(main.module("journalAccess"))) == 2
    assert app_settings(region_of("east", main))["LOCKSTEP_LEDGERS"] == ""


def test_scaling_by_what_waits_takes_the_owners_role_on_the_own_namespace_only() -> None:
    few, more = (
        grants(access_of("east", deployment(scaleByBacklog=switch))) for switch in (False, True)
    )

    (gone,), (new,) = few - more, more - few
    assert (gone[1], new[1]) == ("Azure Service Bus Data Receiver", "Azure Service Bus Data Owner")
    assert gone[2] == new[2]


def test_azure_is_told_that_each_principal_is_new_and_no_person() -> None:
    assigned = [
        section(found.body, "properties")["principalType"]
        for found in access_of("east").resources()
        if found.type == "Microsoft.Authorization/roleAssignments"
    ]

    assert assigned == ["ServicePrincipal"] * 7


def test_a_role_on_the_wrong_resource_is_seen() -> None:
    access = access_of("east")

    assert grants(changed(access, "scope: peers[index]", "scope: own")) != grants(access)


def test_two_role_assignments_never_share_a_name() -> None:
    main = deployment()
    names = [
        str(found.body["name"])
        for region in ("east", "west")
        for found in access_of(region, main).resources()
        if "oleAssignments" in found.type
    ]

    assert len(set(names)) == len(names) == 14


@pytest.mark.parametrize("region", ["east", "west"])
@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        ("namespace", "disableLocalAuth", True),
        ("namespace", "minimumTlsVersion", "1.2"),
        ("storage", "allowSharedKeyAccess", False),
        ("storage", "allowBlobPublicAccess", False),
        ("storage", "minimumTlsVersion", "TLS1_2"),
        ("storage", "supportsHttpsTrafficOnly", True),
        ("insights", "DisableLocalAuth", True),
        ("app", "httpsOnly", True),
    ],
)
def test_no_key_opens_anything_and_nothing_is_below_tls_1_2(
    region: str, resource: str, name: str, value: object
) -> None:
    found = section(region_of(region).resource(resource), "properties")

    assert found[name] == value


def test_neither_door_for_publishing_takes_a_password() -> None:
    policies = [
        found.body
        for found in region_of("east").resources()
        if found.type == "Microsoft.Web/sites/basicPublishingCredentialsPolicies"
    ]

    assert [found["name"] for found in policies] == ["scm", "ftp"]
    assert [found["properties"] for found in policies] == [{"allow": False}] * 2


def test_the_app_runs_as_its_identity_and_fetches_its_package_with_it() -> None:
    template = region_of("east")
    app = template.resource("app")
    identity = f"{template.resource('identity')['name']}.id"
    storage = section(app, "properties", "functionAppConfig", "deployment", "storage")

    assert section(app, "identity")["userAssignedIdentities"] == {str(Unknown(identity)): {}}
    assert storage["authentication"] == {
        "type": "UserAssignedIdentity",
        "userAssignedIdentityResourceId": Unknown(identity),
    }
    assert str(storage["value"]).endswith(str(template.resource("packages")["name"]))

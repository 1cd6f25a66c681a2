"""Who may do what: the roles listed here, on these resources, and no key opens anything."""

from tests.infra.parity import grants, last
from tests.infra.snapshots import Resources, app_settings, of_type, only, read_snapshot, regions_of

GROUP = "11111111-1111-1111-1111-111111111111"
PRODUCER = "22222222-2222-2222-2222-222222222222"


def test_an_identity_holds_these_roles_and_no_other(resources: Resources) -> None:
    regions, given = regions_of(resources), grants(resources)
    names = {
        one: only(resources, "Microsoft.ServiceBus/namespaces", one)["name"] for one in regions
    }
    journal = only(resources, "Microsoft.DocumentDB/databaseAccounts")["name"]
    # Only where the platform shall count what waits; it may then manage the own namespace.
    owns = ("Azure Service Bus Data Owner", names["east"]) in given["east"]
    assert owns == (resources.name == "everything")

    for region in regions:
        storage = only(resources, "Microsoft.Storage/storageAccounts", region)["name"]
        schedulers = of_type(resources, "Microsoft.DurableTask/schedulers", region)
        assert given[region] == {
            (f"Azure Service Bus Data {'Owner' if owns else 'Receiver'}", names[region]),
            *(("Azure Service Bus Data Sender", name) for name in names.values()),
            ("Storage Blob Data Owner", storage),
            ("Storage Queue Data Contributor", storage),
            ("Storage Table Data Contributor", storage),
            (
                "Monitoring Metrics Publisher",
                only(resources, "Microsoft.Insights/components", region)["name"],
            ),
            *(("Durable Task Data Contributor", one["name"]) for one in schedulers),
            ("Cosmos DB Built-in Data Contributor", journal),
        }
    others = {GROUP, PRODUCER} if owns else set()
    assert given.keys() == {*regions, *others}


def test_people_may_look_and_change_nothing_but_the_error_queues() -> None:
    resources = read_snapshot("everything")

    # The journal's metrics lie in its group.
    assert grants(resources)[GROUP] == {
        *(("Monitoring Reader", group) for group in ("rg-trial", "rg-trial-journal")),
        ("Azure Service Bus Data Receiver", "lockstep-errors"),
        (
            "Cosmos DB Built-in Data Reader",
            only(resources, "Microsoft.DocumentDB/databaseAccounts")["name"],
        ),
    }


def test_a_producer_outside_keeps_ledgers_and_sends_to_the_input_queues_and_no_more() -> None:
    resources = read_snapshot("everything")

    assert grants(resources)[PRODUCER] == {
        ("Cosmos DB Built-in Data Contributor", "ledgers"),
        ("Azure Service Bus Data Sender", "lockstep"),
    }
    for region in regions_of(resources):
        assert app_settings(resources, region)["LOCKSTEP_LEDGERS"] == "ledgers"
        assert app_settings(read_snapshot(), "east")["LOCKSTEP_LEDGERS"] == ""


def test_azure_is_told_that_each_principal_is_new_and_no_two_roles_share_a_name(
    resources: Resources,
) -> None:
    given = of_type(resources, "Microsoft.Authorization/roleAssignments")

    assert len({one["name"] for one in given}) == len(given) >= 14
    for one in given:
        kind = "Group" if one["properties"]["principalId"] == GROUP else "ServicePrincipal"
        assert one["properties"]["principalType"] == kind


def test_no_key_opens_anything_and_nothing_is_below_tls_1_2(resources: Resources) -> None:
    wanted = {
        "Microsoft.ServiceBus/namespaces": {"disableLocalAuth": True, "minimumTlsVersion": "1.2"},
        "Microsoft.Storage/storageAccounts": {
            "allowSharedKeyAccess": False,
            "allowBlobPublicAccess": False,
            "minimumTlsVersion": "TLS1_2",
            "supportsHttpsTrafficOnly": True,
        },
        "Microsoft.Insights/components": {"DisableLocalAuth": True},
        "Microsoft.Web/sites": {"httpsOnly": True},
        # A publishing password is a key, too.
        "Microsoft.Web/sites/basicPublishingCredentialsPolicies": {"allow": False},
        "Microsoft.DocumentDB/databaseAccounts": {
            "disableLocalAuth": True,
            "disableKeyBasedMetadataWriteAccess": True,
            "minimalTlsVersion": "Tls12",
        },
    }
    doors = {last(one["name"]) for one in of_type(resources, [*wanted][4])}

    assert doors == {"scm", "ftp"}
    for kind, properties in wanted.items():
        for found in of_type(resources, kind):
            assert found["properties"] | properties == found["properties"], found["name"]


def test_the_app_runs_as_its_identity_and_fetches_its_package_with_it(resources: Resources) -> None:
    for region in regions_of(resources):
        app = only(resources, "Microsoft.Web/sites", region)
        identity = only(resources, "Microsoft.ManagedIdentity/userAssignedIdentities", region)["id"]
        packages = "Microsoft.Storage/storageAccounts/blobServices/containers"
        folder = only(resources, packages, region)["name"]
        storage = app["properties"]["functionAppConfig"]["deployment"]["storage"]

        assert app["identity"]["userAssignedIdentities"] == {identity: {}}
        assert storage["authentication"] == {
            "type": "UserAssignedIdentity",
            "userAssignedIdentityResourceId": identity,
        }
        account, _, name = folder.split("/")
        assert f"/{account}'" in storage["value"]
        assert storage["value"].endswith(f"primaryEndpoints.blob, '{name}')]")

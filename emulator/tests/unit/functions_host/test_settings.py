"""App settings: where they come from, and how bindings name them."""

import json
from pathlib import Path

import pytest

from local.functions_host.clients.service_bus import NamespaceAddress
from local.functions_host.config.functions import read_function
from local.functions_host.config.settings import AppSettings, Unsupported
from local.functions_host.protos import RpcFunctionMetadata


def test_the_environment_wins_over_the_local_settings_file(tmp_path: Path) -> None:
    values = {"QUEUE": "from-file", "REGION": "east"}
    (tmp_path / "local.settings.json").write_text(json.dumps({"Values": values}))

    settings = AppSettings.load(tmp_path, {"QUEUE": "from-environment"})

    assert settings.resolve("%QUEUE%-%REGION%", "receive") == "from-environment-east"


def test_a_file_whose_values_are_no_strings_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "local.settings.json").write_text('{"Values": {"PORT": 1}}')

    with pytest.raises(Unsupported, match="PORT"):
        AppSettings.load(tmp_path, {})


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"IsEncrypted": True}, "IsEncrypted"),
        ({"Host": {"LocalHttpPort": 7071}}, "not honoured: Host"),
        ({"IsEncrypted": False, "Values": {}}, None),
        (["Values"], "not a local settings file"),
    ],
)
def test_a_local_settings_file_is_read_whole_or_refused_by_name(
    tmp_path: Path, document: object, named: str | None
) -> None:
    (tmp_path / "local.settings.json").write_text(json.dumps(document))

    if named is None:
        assert AppSettings.load(tmp_path, {}).values == {}
    else:
        with pytest.raises(Unsupported, match=named):
            AppSettings.load(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AzureWebJobs.saga.Disabled", "true", True),
        ("AzureWebJobs_saga_Disabled", "1", True),
        ("AzureWebJobs.saga.Disabled", "false", False),
        ("AzureWebJobs.other.Disabled", "true", False),
    ],
)
def test_a_setting_switches_a_function_off(name: str, value: str, expected: bool) -> None:
    binding = {"type": "httpTrigger", "name": "req", "direction": "IN"}

    function = read_function(metadata(binding), AppSettings({name: value}), {"httpTrigger"})

    assert function.is_disabled is expected


def test_a_missing_setting_is_refused_with_function_and_name() -> None:
    with pytest.raises(Unsupported, match=r"function receive: the app setting QUEUE is missing"):
        AppSettings({}).resolve("%QUEUE%", "receive")


@pytest.mark.parametrize(
    ("suffix", "address"),
    [
        ("__fullyQualifiedNamespace", "bus.servicebus.windows.net"),
        ("__accountEndpoint", "https://account.documents.azure.com:443/"),
        ("__credential", "managedidentity"),
    ],
)
def test_a_connection_by_identity_to_the_cloud_is_refused_by_name(
    suffix: str, address: str
) -> None:
    settings = AppSettings({f"Bus{suffix}": address})

    with pytest.raises(Unsupported, match=f"function receive: Bus{suffix} asks"):
        settings.connection("Bus", "receive")


def test_a_connection_by_identity_to_an_emulator_is_made_with_its_published_key() -> None:
    settings = AppSettings(
        {
            "Bus__fullyQualifiedNamespace": "127.0.0.1:5673",
            "Bus__credential": "managedidentity",
            "Documents__accountEndpoint": "http://localhost:8081/",
        }
    )

    bus = NamespaceAddress.parse(settings.connection("Bus", "receive"))
    documents = settings.connection("Documents", "follow")

    assert (bus.host, bus.port, bus.key) == ("127.0.0.1", 5673, "SAS_KEY_VALUE")
    assert documents.startswith("AccountEndpoint=http://localhost:8081/;AccountKey=")


def test_a_connection_string_goes_before_an_identity() -> None:
    settings = AppSettings({"Bus": "a string", "Bus__fullyQualifiedNamespace": "127.0.0.1:5673"})

    assert settings.connection("Bus", "receive") == "a string"


def metadata(*bindings: dict[str, str], retry: object = None) -> RpcFunctionMetadata:
    raw = [json.dumps(binding) for binding in bindings]
    return RpcFunctionMetadata(name="saga", function_id="1", raw_bindings=raw, retry_options=retry)


@pytest.mark.parametrize(
    "binding_type",
    ["eventGridTrigger", "eventHubTrigger", "queueTrigger", "cosmosDB", "blob"],
)
def test_a_binding_type_without_a_listener_is_refused_with_the_functions_name(
    binding_type: str,
) -> None:
    binding = {"type": binding_type, "name": "x", "direction": "IN"}

    with pytest.raises(Unsupported, match=rf"function saga: {binding_type}"):
        read_function(metadata(binding), AppSettings({}), {"httpTrigger"})


def test_a_retry_policy_is_refused_where_the_platform_ignores_it() -> None:
    binding = {"type": "serviceBusTrigger", "name": "message", "direction": "IN"}

    with pytest.raises(Unsupported, match="function saga: serviceBusTrigger: a retry policy"):
        read_function(metadata(binding, retry=object()), AppSettings({}), {"serviceBusTrigger"})


def test_a_function_without_a_trigger_is_refused() -> None:
    with pytest.raises(Unsupported, match="exactly one trigger"):
        read_function(metadata(), AppSettings({}), {"httpTrigger"})


def test_an_unknown_property_of_a_binding_is_refused_by_name() -> None:
    binding = {"type": "httpTrigger", "name": "req", "direction": "IN", "color": "red"}
    function = read_function(metadata(binding), AppSettings({}), {"httpTrigger"})

    with pytest.raises(Unsupported, match="function saga: httpTrigger: not honoured: color"):
        function.trigger.only("route")

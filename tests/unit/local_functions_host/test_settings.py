"""App settings: where they come from, and how bindings name them."""

import json
from pathlib import Path

import pytest

from local.functions_host.function import read_function
from local.functions_host.protos import RpcFunctionMetadata
from local.functions_host.refusal import Refused
from local.functions_host.settings import AppSettings


def test_the_environment_wins_over_the_local_settings_file(tmp_path: Path) -> None:
    values = {"QUEUE": "from-file", "REGION": "east"}
    (tmp_path / "local.settings.json").write_text(json.dumps({"Values": values}))

    settings = AppSettings.load(tmp_path, {"QUEUE": "from-environment"})

    assert settings.resolve("%QUEUE%-%REGION%", "receive") == "from-environment-east"


def test_a_file_whose_values_are_no_strings_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "local.settings.json").write_text('{"Values": {"PORT": 1}}')

    with pytest.raises(Refused, match="PORT"):
        AppSettings.load(tmp_path, {})


def test_a_missing_setting_is_refused_with_function_and_name() -> None:
    with pytest.raises(Refused, match=r"function receive: the app setting QUEUE is missing"):
        AppSettings({}).resolve("%QUEUE%", "receive")


@pytest.mark.parametrize("suffix", ["__fullyQualifiedNamespace", "__accountEndpoint"])
def test_a_connection_by_identity_is_refused_by_name(suffix: str) -> None:
    settings = AppSettings({f"Bus{suffix}": "bus.example"})

    with pytest.raises(Refused, match=f"Bus{suffix}"):
        settings.connection("Bus", "receive")


def metadata(*bindings: dict[str, str], retry: object = None) -> RpcFunctionMetadata:
    raw = [json.dumps(binding) for binding in bindings]
    return RpcFunctionMetadata(name="saga", function_id="1", raw_bindings=raw, retry_options=retry)


@pytest.mark.parametrize(
    "binding_type",
    ["orchestrationTrigger", "activityTrigger", "entityTrigger", "durableClient", "queueTrigger"],
)
def test_a_binding_type_without_a_listener_is_refused_with_the_functions_name(
    binding_type: str,
) -> None:
    binding = {"type": binding_type, "name": "x", "direction": "IN"}

    with pytest.raises(Refused, match=rf"function saga: {binding_type}"):
        read_function(metadata(binding), AppSettings({}), {"httpTrigger"})


def test_a_retry_policy_is_refused() -> None:
    binding = {"type": "httpTrigger", "name": "req", "direction": "IN"}

    with pytest.raises(Refused, match="function saga: a retry policy"):
        read_function(metadata(binding, retry=object()), AppSettings({}), {"httpTrigger"})


def test_a_function_without_a_trigger_is_refused() -> None:
    with pytest.raises(Refused, match="exactly one trigger"):
        read_function(metadata(), AppSettings({}), {"httpTrigger"})


def test_an_unknown_property_of_a_binding_is_refused_by_name() -> None:
    binding = {"type": "httpTrigger", "name": "req", "direction": "IN", "color": "red"}
    function = read_function(metadata(binding), AppSettings({}), {"httpTrigger"})

    with pytest.raises(Refused, match="function saga: httpTrigger: not honoured: color"):
        function.trigger.only("route")
